import { useMessages } from "~/i18n/messages";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { PageHead } from "~/parts/PageHead";
import { shellMessages } from "./messages";

/** In place of a page that could not be drawn; the rest of the console goes on. */
export function FailedPage({ error, reset }: { error: unknown; reset: () => void }) {
  const t = useMessages(shellMessages);
  return (
    <div className="page">
      <PageHead title={t("failed")} />
      <ErrorNotice error={error} onRetry={reset} />
    </div>
  );
}
