import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { StateIcon } from "~/parts/StateIcon";
import { AnsiText } from "./log/AnsiText";
import { lastLinesQuery } from "./log/logLines";
import { runMessages } from "./messages";
import { RetryDialog } from "./RetryDialog";
import type { Step, WholeRun } from "./runQueries";
import { useSelection } from "./selection";
import { culprit, stepName } from "./steps";

/** What failed, the last that it said, and the three things that people do next. */
export function FailurePanel({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const failed = culprit(run);
  if (run.state !== "failed" && run.state !== "timed_out" && !failed) return null;
  if (run.finished_at && run.state === "succeeded") return null;
  const others = run.steps.filter(
    (step) =>
      !step.parent &&
      (step.state === "failed" || step.state === "incomplete") &&
      step.id !== (failed?.parent || failed?.id),
  ).length;
  return (
    <section className="card padded failure" aria-labelledby="failure-title">
      <h2 id="failure-title">
        <StateIcon state="failed" size={16} />
        {failed ? t("step_failed", { step: stepName(failed) }) : t("run_failed")}
        {others > 0 && failed ? <span className="muted">{t("others_failed", { n: others })}</span> : null}
      </h2>
      <p className="failure-reason">{failed?.reason || run.error_message}</p>
      {failed && failed.attempts > 0 ? <LastLines run={run} step={failed} /> : null}
      <NextThings run={run} step={failed} />
    </section>
  );
}

function LastLines({ run, step }: { run: WholeRun; step: Step }) {
  const t = useMessages(runMessages);
  const lines = useQuery(lastLinesQuery(run.id, step.id, step.attempts)).data;
  if (!lines) return null;
  if (lines.length === 0) return <p className="muted">{t("no_output")}</p>;
  return (
    <pre className="log-text last-lines" tabIndex={0} aria-label={t("last_lines")}>
      {lines.map((line, index) => (
        <span key={index} className={`log-row stream-${line.stream}`}>
          <AnsiText text={line.text} />
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

function NextThings({ run, step }: { run: WholeRun; step: Step | undefined }) {
  const t = useMessages(runMessages);
  const { open } = useSelection();
  const [retrying, setRetrying] = useState(false);
  const mayRun = useMay("operator");
  const mayEdit = useMay("editor");
  return (
    <div className="row">
      <button type="button" className="button" onClick={() => open("log", step?.id)}>
        {t("see_log")}
      </button>
      {mayRun && run.finished_at ? (
        <button type="button" className="button primary" onClick={() => setRetrying(true)}>
          {t("retry_here")}
        </button>
      ) : null}
      {mayEdit ? (
        <Link to="/workflows/$workflowId/edit" params={{ workflowId: run.workflow }} className="button">
          {t("edit")}
        </Link>
      ) : null}
      {retrying ? (
        <RetryDialog
          run={run}
          {...(step ? { step: step.id, what: "from" as const } : {})}
          onClose={() => setRetrying(false)}
        />
      ) : null}
    </div>
  );
}
