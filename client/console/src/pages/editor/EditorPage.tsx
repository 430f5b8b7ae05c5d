import { useMessages } from "~/i18n/messages";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { shellMessages } from "~/shell/messages";

export function EditorPage() {
  const t = useMessages(shellMessages);
  return (
    <div className="page">
      <PageHead title={t("new_workflow")} />
      <section className="card">
        <EmptyState title={t("coming")} />
      </section>
    </div>
  );
}
