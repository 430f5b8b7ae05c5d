import { Link } from "@tanstack/react-router";
import { useMessages } from "~/i18n/messages";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { shellMessages } from "./messages";

export function NotFoundPage() {
  const t = useMessages(shellMessages);
  return (
    <div className="page">
      <PageHead title={t("not_found")} />
      <section className="card">
        <EmptyState
          title={window.location.pathname}
          action={
            <Link to="/" className="button">
              {t("to_overview")}
            </Link>
          }
        >
          {t("not_found_text")}
        </EmptyState>
      </section>
    </div>
  );
}
