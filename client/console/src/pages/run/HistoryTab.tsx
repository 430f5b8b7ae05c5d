import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { StateIcon } from "~/parts/StateIcon";
import { Time } from "~/parts/Time";
import { toneOf } from "~/parts/tone";
import { runMessages } from "./messages";
import { RunIdLink } from "./RunHead";
import type { Process, WholeRun } from "./runQueries";

interface Happening {
  at: string;
  state: string;
  text: ReactNode;
}

const MOST = 500;

/** What happened to the run, in order: its creation and why, its attempts, decisions and its end. */
export function HistoryTab({ run, processes }: { run: WholeRun; processes: readonly Process[] }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const all = [...ofRun(run, t, w), ...ofProcesses(processes, t, w)].sort((a, b) => a.at.localeCompare(b.at));
  return (
    <div className="padded-body stack">
      <Cause run={run} />
      <ol className="history">
        {all.slice(0, MOST).map((each, index) => (
          <li key={index} className={`tone-${toneOf(each.state)}`}>
            <StateIcon state={each.state} />
            <Time at={each.at} />
            <span>{each.text}</span>
          </li>
        ))}
      </ol>
      {all.length > MOST ? <p className="muted">{t("history_cut", { n: all.length - MOST })}</p> : null}
    </div>
  );
}

function Cause({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  if (!run.event_id && !run.retry_of && !run.parent_run && !run.schedule_id) return null;
  return (
    <p>
      {run.event_id ? (
        <>
          {t("caused_by_event", { type: run.event_type })} <Link to="/events">{run.event_id.slice(0, 13)}…</Link>{" "}
        </>
      ) : null}
      {run.schedule_id ? <>{t("caused_by_schedule", { schedule: run.schedule_id })} </> : null}
      {run.retry_of ? <RunIdLink id={run.retry_of} text={t("retry_of_run")} /> : null}{" "}
      {run.parent_run ? <RunIdLink id={run.parent_run} text={t("parent_of_run")} /> : null}
    </p>
  );
}

type T = ReturnType<typeof useMessages<keyof (typeof runMessages)["en"]>>;
type W = ReturnType<typeof useMessages<keyof (typeof words)["en"]>>;

function ofRun(run: WholeRun, t: T, w: W): Happening[] {
  const found: Happening[] = [];
  const add = (at: string | undefined, state: string, text: ReactNode) => {
    if (at) found.push({ at, state, text });
  };
  add(run.created_at, "pending", t("was_created", { caller: run.caller || "–" }));
  add(run.started_at, "running", t("was_started"));
  add(run.paused_at, "paused", t("was_paused"));
  add(run.cancel_requested_at, "cancelling", t("was_cancelled"));
  add(run.finally_part?.began_at, "running", t("finally_began"));
  const key = wordKey("", run.state);
  add(run.finished_at, run.state ?? "unknown", t("was_finished", { state: key ? w(key) : String(run.state) }));
  for (const step of run.steps) {
    if (step.job_type === "approval" && step.finished_at) {
      const state = wordKey("", step.state);
      add(
        step.finished_at,
        step.state ?? "",
        `${step.id}: ${state ? w(state) : step.state}${decision(step.result_json)}`,
      );
    }
  }
  return found;
}

/** Who decided, and the comment. */
function decision(result: string): string {
  try {
    const { by, note } = JSON.parse(result) as { by?: string; note?: string };
    return `${by ? ` · ${by}` : ""}${note ? ` · ${note}` : ""}`;
  } catch {
    return "";
  }
}

function ofProcesses(processes: readonly Process[], t: T, w: W): Happening[] {
  return processes.flatMap((each) => {
    const name = { step: each.step, attempt: String(each.attempt) };
    const found: Happening[] = [];
    const began = each.started_at ?? each.launched_at;
    if (began) found.push({ at: began, state: "running", text: t("attempt_began", name) });
    if (each.finished_at) {
      const key = wordKey("", each.state);
      const state = key ? w(key) : String(each.state);
      const why = each.error_message || (each.exit_code ? t("exit", { code: String(each.exit_code) }) : "");
      const text = t("attempt_ended", { ...name, state });
      found.push({ at: each.finished_at, state: each.state ?? "unknown", text: why ? `${text} · ${why}` : text });
    }
    return found;
  });
}
