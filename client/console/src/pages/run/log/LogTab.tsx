import { useEffect, useId, useRef, useState } from "react";
import { useMessages } from "~/i18n/messages";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { Problem } from "~/api/problem";
import { runMessages } from "../messages";
import type { WholeRun } from "../runQueries";
import { useSelection } from "../selection";
import { stepName } from "../steps";
import { FindBox } from "./FindBox";
import { LineDetail } from "./LineDetail";
import { LogView } from "./LogView";
import { type LogStream, logAddress } from "./logLines";
import { useFind } from "./useFind";
import { useLog } from "./useLog";
import "./log.css";

const TIMES = "toban.log-times";

/** The log of the run, or of the selected step, while it is written. */
export function LogTab({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const { step, line, toLine } = useSelection();
  const [stream, setStream] = useState<LogStream>();
  const store = useLog(run.id, { step, stream });
  const [text, setText] = useState("");
  const [place, setPlace] = useState(-1);
  const [following, setFollowing] = useState(!line && run.state !== "succeeded");
  const [times, setTimes] = useState(localStorage.getItem(TIMES) === "yes");
  const found = useFind(store, text);
  const findField = useRef<HTMLInputElement>(null);
  const live = !store.end;

  useEffect(() => setPlace(-1), [text]);
  const go = (by: number) => {
    const count = found.lines.length;
    if (count === 0) return;
    const next = place < 0 ? (by > 0 ? 0 : count - 1) : (place + by + count) % count;
    setPlace(next);
    setFollowing(false);
    toLine((found.lines[next] ?? 0) + 1);
  };
  const toggleTimes = (shown: boolean) => {
    localStorage.setItem(TIMES, shown ? "yes" : "no");
    setTimes(shown);
  };

  return (
    <div
      className="log"
      onKeyDown={(event) => {
        const find = event.key === "/" || ((event.ctrlKey || event.metaKey) && event.key === "f");
        if (!find || event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
        event.preventDefault();
        findField.current?.focus();
      }}
    >
      <div className="log-tools">
        <StepFilter run={run} />
        <StreamFilter stream={stream} onChange={setStream} />
        <FindBox field={findField} text={text} onText={setText} found={found.lines.length} place={place} onGo={go} />
        <label className="check">
          <input type="checkbox" checked={times} onChange={(event) => toggleTimes(event.target.checked)} />
          {t("times")}
        </label>
        {live ? (
          <button
            type="button"
            className="button small"
            aria-pressed={following}
            onClick={() => setFollowing(!following)}
          >
            {following ? t("pause_log") : t("follow_log")}
          </button>
        ) : null}
        <a className="button small" href={logAddress(run.id, "logs/raw", { step, stream })} download>
          {t("download_log")}
        </a>
      </div>
      {store.end?.kind === "problem" ? (
        <ErrorNotice error={new Problem(410, { detail: store.end.message, reason: store.end.reason })} />
      ) : null}
      <LogView
        store={store}
        showSteps={!step}
        times={times}
        found={found.wanted}
        selected={line}
        following={following}
        onFollowing={setFollowing}
        onSelect={toLine}
      />
      {line && line <= store.count ? (
        <LineDetail number={line} line={store.line(line - 1)} onClose={() => toLine(undefined)} />
      ) : null}
    </div>
  );
}

function StepFilter({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const { step, select, toLine } = useSelection();
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{t("step_filter")}</label>
      <select
        id={id}
        className="select"
        value={step ?? ""}
        onChange={(event) => {
          toLine(undefined);
          select(event.target.value || undefined);
        }}
      >
        <option value="">{t("all_steps")}</option>
        {run.steps.map((each) => (
          <option key={each.id} value={each.id}>
            {stepName(each)}
          </option>
        ))}
      </select>
    </div>
  );
}

function StreamFilter(props: { stream: LogStream | undefined; onChange: (stream: LogStream | undefined) => void }) {
  const t = useMessages(runMessages);
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{t("stream_filter")}</label>
      <select
        id={id}
        className="select"
        value={props.stream ?? ""}
        onChange={(event) => props.onChange((event.target.value || undefined) as LogStream | undefined)}
      >
        <option value="">{t("both_streams")}</option>
        <option value="stdout">stdout</option>
        <option value="stderr">stderr</option>
      </select>
    </div>
  );
}
