import { type ReactNode, useState } from "react";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { Duration } from "~/parts/Duration";
import { StateBadge } from "~/parts/StateBadge";
import { StateIcon } from "~/parts/StateIcon";
import { Time } from "~/parts/Time";
import { Instances } from "./Instances";
import { runMessages } from "./messages";
import { RetryDialog } from "./RetryDialog";
import { RunIdLink } from "./RunHead";
import type { Process, Step, WholeRun } from "./runQueries";
import { useSelection } from "./selection";
import { stepState, UNSUCCESSFUL } from "./steps";

interface Props {
  run: WholeRun;
  step: Step;
  processes: readonly Process[];
  onClose: () => void;
}

/** The selected step: how it stands, its attempts, what it printed and made. */
export function StepPanel({ run, step, processes, onClose }: Props) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const attempts = processes.filter((each) => each.step === step.id || each.step === `${step.id}.check`);
  return (
    <aside className="step-panel stack" aria-label={t("step_panel", { step: step.id })}>
      <div className="row spread">
        <h2>{step.parent ? step.id : step.title || step.id}</h2>
        <button type="button" className="button quiet small" aria-label={w("close")} onClick={onClose}>
          ×
        </button>
      </div>
      <div className="row">
        <StateBadge state={stepState(step)} />
        {step.title && step.title !== step.id ? <code>{step.id}</code> : null}
        {step.is_finally ? <span className="chip">finally</span> : null}
      </div>
      {step.reason ? <p className={step.state === "failed" ? "failure-reason" : "muted"}>{step.reason}</p> : null}
      <Facts step={step} />
      <Instances run={run} step={step} />
      <Attempts attempts={attempts} />
      <Values step={step} />
      <Command command={attempts.at(-1)?.command} />
      <Buttons run={run} step={step} />
    </aside>
  );
}

function Facts({ step }: { step: Step }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const waiting = step.finished_at ? undefined : wordKey("wait_", step.waiting_for);
  const skipped = step.skip_reason;
  const facts: [string, ReactNode][] = [];
  if (waiting) facts.push([w("waiting"), w(waiting)]);
  if (step.not_before) facts.push([t("next_attempt"), <Time key="t" at={step.not_before} />]);
  if (skipped) facts.push([w("skipped"), t(`skip_${skipped}`)]);
  if (step.skip_note) facts.push([t("skip_note"), `${step.skip_note} (${step.skipped_by})`]);
  if (step.progress_message) facts.push([t("progress"), step.progress_message]);
  facts.push([w("startedAt"), <Time key="t" at={step.started_at} />]);
  facts.push([w("duration"), <Duration key="t" from={step.started_at} to={step.finished_at} />]);
  if (step.job_type) facts.push([t("kind"), step.job ? `${step.job_type} · ${step.job}` : step.job_type]);
  if (step.exit_code !== undefined) facts.push([t("exit_code"), String(step.exit_code)]);
  if (step.max_retries > 0) facts.push([t("retries"), `${step.retries} / ${step.max_retries}`]);
  if (step.max_iterations > 0) facts.push([t("iteration"), `${step.iteration} / ${step.max_iterations}`]);
  if (step.depends_on.length > 0) facts.push([t("needs"), step.depends_on.join(", ")]);
  if (step.item_json) facts.push([t("item"), <code key="c">{step.item_json}</code>]);
  if (step.source_run)
    facts.push([t("result_from"), <RunIdLink key="r" id={step.source_run} text={t("earlier_run")} />]);
  if (step.child_run) facts.push([t("child"), <RunIdLink key="r" id={step.child_run} text={t("open_child")} />]);
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name} className="fact">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Attempts({ attempts }: { attempts: readonly Process[] }) {
  const t = useMessages(runMessages);
  if (attempts.length < 2) return null;
  return (
    <section>
      <h3>{t("attempts")}</h3>
      <ol className="attempts">
        {attempts.map((each) => (
          <li key={each.id} className={`tone-${each.state === "completed" ? "ok" : "bad"}`}>
            <StateIcon state={each.state ?? "unknown"} />
            <span>
              {each.check ? t("check") : `#${each.attempt}`} <Time at={each.started_at ?? each.launched_at} />{" "}
              <Duration from={each.started_at} to={each.finished_at} />{" "}
              {each.exit_code !== undefined ? <code>{t("exit", { code: String(each.exit_code) })}</code> : null}
              {each.signal ? <code>{t("signal", { signal: String(each.signal) })}</code> : null}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Values({ step }: { step: Step }) {
  const t = useMessages(runMessages);
  const outputs = Object.entries(step.outputs);
  return (
    <>
      {outputs.length > 0 ? (
        <section>
          <h3>{t("outputs")}</h3>
          <dl className="facts">
            {outputs.map(([name, value]) => (
              <div key={name} className="fact">
                <dt>{name}</dt>
                <dd>
                  <code>{value}</code>
                </dd>
              </div>
            ))}
          </dl>
        </section>
      ) : null}
      {step.result_json ? (
        <section>
          <h3>{t("result")}</h3>
          <pre className="log-text" tabIndex={0}>
            {pretty(step.result_json)}
          </pre>
        </section>
      ) : null}
    </>
  );
}

function Command({ command }: { command: string | undefined }) {
  const t = useMessages(runMessages);
  if (!command) return null;
  return (
    <section>
      <h3>{t("command")}</h3>
      <pre className="log-text command" tabIndex={0} aria-label={t("command")}>
        {command}
      </pre>
    </section>
  );
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

function Buttons({ run, step }: { run: WholeRun; step: Step }) {
  const t = useMessages(runMessages);
  const { open } = useSelection();
  const mayRun = useMay("operator");
  const [what, setWhat] = useState<"from" | "skip">();
  return (
    <div className="row">
      {step.attempts > 0 || step.instances > 0 ? (
        <button type="button" className="button small" onClick={() => open("log", step.id)}>
          {t("see_log")}
        </button>
      ) : null}
      {mayRun && run.finished_at ? (
        <button type="button" className="button small" onClick={() => setWhat("from")}>
          {t("retry_here")}
        </button>
      ) : null}
      {mayRun && run.finished_at && UNSUCCESSFUL.has(step.state ?? "") ? (
        <button type="button" className="button small" onClick={() => setWhat("skip")}>
          {t("skip_step")}
        </button>
      ) : null}
      {what ? <RetryDialog run={run} step={step.id} what={what} onClose={() => setWhat(undefined)} /> : null}
    </div>
  );
}
