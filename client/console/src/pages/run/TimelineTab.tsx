import { useRef, useState } from "react";
import { useLanguage, useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { useNow } from "~/parts/clock";
import { useFixedRows } from "~/parts/fixedRows";
import { StateIcon } from "~/parts/StateIcon";
import { durationText } from "~/parts/timeText";
import { toneOf } from "~/parts/tone";
import { runMessages } from "./messages";
import type { Process, Step, WholeRun } from "./runQueries";
import { useSelection } from "./selection";
import { stepState } from "./steps";

const ROW = 30;
const MOST_ROWS = 20;
const TICKS = 5;

interface Scale {
  from: number;
  length: number;
  now: number;
}

interface Props {
  run: WholeRun;
  processes: readonly Process[];
}

/** When each step ran: a bar for each attempt, lighter while it waited for its start. */
export function TimelineTab({ run, processes }: Props) {
  const t = useMessages(runMessages);
  const [all, setAll] = useState(false);
  const { step: chosen, select } = useSelection();
  const frame = useRef<HTMLDivElement>(null);
  const now = useNow(run.finished_at ? 3_600_000 : 1000);
  const hasInstances = run.steps.some((step) => step.parent);
  const steps = run.steps.filter((step) => all || !step.parent);
  const rows = useFixedRows(frame, steps.length, ROW);
  const scale = scaleOf(run, processes, now);
  const byStep = attemptsByStep(processes, all);
  return (
    <div className="timeline">
      {hasInstances ? (
        <label className="check timeline-option">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
          {t("show_instances")}
        </label>
      ) : null}
      <Axis scale={scale} />
      <div
        ref={frame}
        className="timeline-rows"
        style={{ height: Math.min(MOST_ROWS, steps.length) * ROW }}
        role="group"
        aria-label={t("tab_timeline")}
      >
        <div className="rows-space" style={{ height: rows.height }}>
          <div style={{ transform: `translateY(${rows.top}px)` }}>
            {steps.slice(rows.first, rows.end).map((step) => (
              <Row
                key={step.id}
                step={step}
                attempts={byStep.get(step.id) ?? []}
                scale={scale}
                chosen={step.id === chosen}
                onSelect={() => select(step.id === chosen ? undefined : step.id)}
              />
            ))}
          </div>
        </div>
      </div>
    </div>
  );
}

/** Attempts by step; while instances are not shown, theirs count for the whole step. */
function attemptsByStep(processes: readonly Process[], all: boolean): Map<string, Process[]> {
  const found = new Map<string, Process[]>();
  for (const process of processes) {
    const own = process.step.replace(/\.check$/, "");
    const step = all ? own : own.replace(/\[\d+\]$/, "");
    const list = found.get(step);
    if (list) list.push(process);
    else found.set(step, [process]);
  }
  return found;
}

function scaleOf(run: WholeRun, processes: readonly Process[], clock: number): Scale {
  const from = Date.parse(run.started_at ?? run.created_at ?? new Date(clock).toISOString());
  let to = run.finished_at ? Date.parse(run.finished_at) : Math.max(clock, Date.now());
  for (const each of processes) if (each.finished_at) to = Math.max(to, Date.parse(each.finished_at));
  return { from, length: Math.max(1, to - from), now: to };
}

function Axis({ scale }: { scale: Scale }) {
  const language = useLanguage();
  return (
    <div className="timeline-axis" aria-hidden="true">
      <span />
      <div>
        {Array.from({ length: TICKS }, (_, index) => (
          <span key={index} style={{ left: `${(100 * index) / (TICKS - 1)}%` }} className={`tick tick-${index}`}>
            {durationText((scale.length * index) / (TICKS - 1) / 1000, language)}
          </span>
        ))}
      </div>
    </div>
  );
}

interface RowProps {
  step: Step;
  attempts: readonly Process[];
  scale: Scale;
  chosen: boolean;
  onSelect: () => void;
}

function Row({ step, attempts, scale, chosen, onSelect }: RowProps) {
  const w = useMessages(words);
  const language = useLanguage();
  const state = stepState(step);
  const key = wordKey("", state);
  const took = step.started_at
    ? durationText(
        (Date.parse(step.finished_at ?? new Date(scale.now).toISOString()) - Date.parse(step.started_at)) / 1000,
        language,
      )
    : "";
  return (
    <button
      type="button"
      className={chosen ? "timeline-row chosen" : "timeline-row"}
      aria-pressed={chosen}
      onClick={onSelect}
    >
      <span className={`timeline-name tone-${toneOf(state)}`}>
        <StateIcon state={state} />
        <span className="one-line">{step.parent ? step.id : step.title || step.id}</span>
        <span className="visually-hidden">{key ? w(key) : state}</span>
      </span>
      <span className="timeline-track">
        {attempts.length > 0
          ? attempts.map((each) => <Bar key={each.id} process={each} scale={scale} />)
          : step.started_at && <WaitBar step={step} scale={scale} />}
        {took ? <span className="timeline-took number">{took}</span> : null}
      </span>
    </button>
  );
}

function placed(from: number, to: number, scale: Scale) {
  const left = (100 * (from - scale.from)) / scale.length;
  return { left: `${Math.max(0, left)}%`, width: `${Math.max(0.15, (100 * (to - from)) / scale.length)}%` };
}

function Bar({ process, scale }: { process: Process; scale: Scale }) {
  const launched = Date.parse(process.launched_at ?? process.started_at ?? "");
  const started = process.started_at ? Date.parse(process.started_at) : undefined;
  const ended = process.finished_at ? Date.parse(process.finished_at) : scale.now;
  const state = process.state ?? "unknown";
  return (
    <>
      {launched < (started ?? ended) ? (
        <span className="bar-wait" style={placed(launched, started ?? ended, scale)} />
      ) : null}
      {started === undefined ? null : (
        <span
          className={`bar-run tone-${toneOf(state)} state-${state}`}
          title={`${process.step} #${process.attempt}`}
          style={placed(started, ended, scale)}
        />
      )}
    </>
  );
}

/** A step without processes, such as an approval. */
function WaitBar({ step, scale }: { step: Step; scale: Scale }) {
  const ended = step.finished_at ? Date.parse(step.finished_at) : scale.now;
  return <span className="bar-wait" style={placed(Date.parse(step.started_at ?? ""), ended, scale)} />;
}
