import { useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { decideApproval } from "~/api/actions";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { StateIcon } from "~/parts/StateIcon";
import { toast } from "~/parts/toasts";
import { runMessages } from "./messages";
import type { Step, WholeRun } from "./runQueries";
import { stepName } from "./steps";

/** The decisions that the run waits for. */
export function ApprovalPanel({ run }: { run: WholeRun }) {
  if (run.finished_at) return null;
  return run.steps
    .filter((step) => step.waiting_for === "approval")
    .map((step) => <Decision key={step.id} run={run} step={step} />);
}

function Decision({ run, step }: { run: WholeRun; step: Step }) {
  const t = useMessages(runMessages);
  const queries = useQueryClient();
  const mayDecide = useMay("operator");
  const [note, setNote] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const id = useId();

  async function decide(approve: boolean) {
    setBusy(true);
    setError(undefined);
    try {
      await decideApproval(run.id, step.id, approve, note);
      toast(approve ? t("approved", { step: stepName(step) }) : t("rejected", { step: stepName(step) }));
      await queries.invalidateQueries({ queryKey: ["run", run.id] });
    } catch (caught) {
      setError(caught);
    }
    setBusy(false);
  }

  return (
    <section className="card padded approval stack" aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>
        <StateIcon state="approval" size={16} />
        {t("approval_title", { step: stepName(step) })}
      </h2>
      {step.approvers.length > 0 ? (
        <p className="muted">{t("approvers", { names: step.approvers.join(", ") })}</p>
      ) : null}
      {mayDecide ? (
        <>
          <div className="field">
            <label htmlFor={id}>{t("comment")}</label>
            <input
              id={id}
              className="input"
              maxLength={1000}
              autoComplete="off"
              value={note}
              onChange={(event) => setNote(event.target.value)}
            />
          </div>
          {error ? <ErrorNotice error={error} /> : null}
          <div className="row">
            <button type="button" className="button primary" disabled={busy} onClick={() => void decide(true)}>
              {t("approve")}
            </button>
            <button type="button" className="button danger" disabled={busy} onClick={() => void decide(false)}>
              {t("reject")}
            </button>
          </div>
        </>
      ) : null}
    </section>
  );
}
