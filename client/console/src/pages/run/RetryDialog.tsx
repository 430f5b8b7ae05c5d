import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useState } from "react";
import { retryRun, type RetryHow } from "~/api/actions";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { toast } from "~/parts/toasts";
import { runMessages } from "./messages";
import { runName } from "./RunActions";
import { currentVersionQuery, type WholeRun } from "./runQueries";
import { stepName, UNSUCCESSFUL } from "./steps";

type What = "failed" | "from" | "skip" | "everything";

interface Props {
  run: WholeRun;
  /** The step to begin from, or to skip. */
  step?: string;
  /** What is chosen first. */
  what?: What;
  onClose: () => void;
}

/** Repeats the run: what failed, from a step on, without a step that failed, or all of it. */
export function RetryDialog({ run, step: given, what: first, onClose }: Props) {
  const t = useMessages(runMessages);
  const navigate = useNavigate();
  const failed = run.steps.filter((each) => UNSUCCESSFUL.has(each.state ?? "") && !each.parent);
  const [what, setWhat] = useState<What>(first ?? (failed.length > 0 ? "failed" : "everything"));
  const [step, setStep] = useState(given ?? failed[0]?.id ?? run.steps[0]?.id ?? "");
  const [note, setNote] = useState("");
  const [newest, setNewest] = useState(false);
  const current = useQuery(currentVersionQuery(run.workflow)).data;
  const newer = typeof current === "number" && current > run.version ? current : undefined;
  const skippable = run.steps.filter((each) => each.state === "failed" || each.state === "cancelled");
  const choices: What[] = [
    ...(failed.length > 0 ? (["failed"] as const) : []),
    "from",
    ...(skippable.length > 0 ? (["skip"] as const) : []),
    "everything",
  ];
  const offered = what === "skip" ? skippable : run.steps;

  return (
    <ConfirmDialog
      title={t("retry_title", { name: runName(run) })}
      action={t("retry")}
      onConfirm={async () => {
        const started = await retryRun(run.id, howOf(what, step, note, newest));
        toast(t("retried", { name: runName(run), number: String(started.number) }));
        void navigate({ to: "/runs/$runId", params: { runId: started.id } });
      }}
      onClose={onClose}
    >
      <fieldset className="choices">
        <legend className="visually-hidden">{t("retry_what")}</legend>
        {choices.map((each) => (
          <label key={each}>
            <input type="radio" name="what" checked={what === each} onChange={() => setWhat(each)} />
            <span>
              {t(`retry_${each}`)}
              <span className="hint">{t(`retry_${each}_hint`)}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {what === "from" || what === "skip" ? <StepChoice steps={offered} step={step} onChange={setStep} /> : null}
      {what === "skip" ? <Note note={note} onChange={setNote} /> : null}
      {newer ? (
        <label className="check">
          <input type="checkbox" checked={newest} onChange={(event) => setNewest(event.target.checked)} />
          <span>
            {t("newest", { version: String(newer) })}
            <span className="hint">{t("newest_hint", { version: String(run.version) })}</span>
          </span>
        </label>
      ) : null}
    </ConfirmDialog>
  );
}

function howOf(what: What, step: string, note: string, newest: boolean): RetryHow {
  const version = newest ? { newest_version: true } : {};
  if (what === "from") return { from_steps: [step], ...version };
  if (what === "skip") return { skip: [step], skip_note: note, ...version };
  return what === "everything" ? { everything: true, ...version } : version;
}

function StepChoice(props: { steps: WholeRun["steps"]; step: string; onChange: (step: string) => void }) {
  const t = useMessages(runMessages);
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{t("which_step")}</label>
      <select id={id} className="select" value={props.step} onChange={(event) => props.onChange(event.target.value)}>
        {props.steps.map((each) => (
          <option key={each.id} value={each.id}>
            {stepName(each)}
          </option>
        ))}
      </select>
    </div>
  );
}

function Note({ note, onChange }: { note: string; onChange: (note: string) => void }) {
  const t = useMessages(runMessages);
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{t("skip_note")}</label>
      <input
        id={id}
        className="input"
        required
        maxLength={1000}
        value={note}
        onChange={(event) => onChange(event.target.value)}
      />
    </div>
  );
}
