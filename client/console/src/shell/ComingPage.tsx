import { useMessages } from "~/i18n/messages";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { shellMessages } from "./messages";

/** In place of a page that has no file yet. */
export function ComingPage() {
  const t = useMessages(shellMessages);
  return (
    <div className="page">
      <PageHead title="Toban" />
      <section className="card">
        <EmptyState title={t("coming")} />
      </section>
    </div>
  );
}
