import { type ClipboardEvent, type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import { useLanguage, useMessages } from "~/i18n/messages";
import { useFixedRows } from "~/parts/fixedRows";
import { runMessages } from "../messages";
import { AnsiText } from "./AnsiText";
import type { LineStore } from "./LineStore";
import type { LogLine } from "./logLines";

const ROW = 20;
/** Of a longer line only the beginning is in its row; all of it is in the detail. */
const LONG = 1_000;

interface Props {
  store: LineStore;
  showSteps: boolean;
  times: boolean;
  found: RegExp | undefined;
  /** Numbers of lines begin with 1. */
  selected: number | undefined;
  following: boolean;
  onFollowing: (following: boolean) => void;
  onSelect: (line: number | undefined) => void;
}

/** Lines of a log, of which only those in view are drawn. */
export function LogView({ store, showSteps, times, found, selected, following, onFollowing, onSelect }: Props) {
  const t = useMessages(runMessages);
  const frame = useRef<HTMLDivElement>(null);
  const rows = useFixedRows(frame, store.count, ROW);
  const [anchor, setAnchor] = useState<number>();
  const scrolled = useRef(0);
  const wanted = useRef<number>(undefined);
  const { show, toEnd } = rows;
  const count = store.count;

  useLayoutEffect(() => {
    if (following) toEnd();
  }, [following, count, toEnd]);
  useEffect(() => {
    wanted.current = selected;
  }, [selected, store]);
  // A deep link may be to a line that has not arrived yet.
  useEffect(() => {
    if (!wanted.current || wanted.current > count || following) return;
    show(wanted.current - 1);
    wanted.current = undefined;
  }, [selected, count, show, following]);

  const range = selected ? [Math.min(selected, anchor ?? selected), Math.max(selected, anchor ?? selected)] : undefined;
  const isChosen = (row: number) => range !== undefined && row + 1 >= (range[0] ?? 0) && row + 1 <= (range[1] ?? 0);

  const onScroll = () => {
    const top = frame.current?.scrollTop ?? 0;
    if (top < scrolled.current - 2 && following) onFollowing(false);
    scrolled.current = top;
  };
  const choose = (row: number, extend: boolean) => {
    setAnchor(extend ? (anchor ?? selected ?? row + 1) : row + 1);
    onFollowing(false);
    onSelect(row + 1);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { j: 1, k: -1, J: 1, K: -1 }[event.key];
    if (by && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const row = Math.min(count - 1, Math.max(0, (selected ?? rows.firstSeen + (by > 0 ? 0 : 2)) - 1 + by));
      choose(row, event.shiftKey);
      event.preventDefault();
    } else if (event.key === "End") onFollowing(true);
    else if (event.key === "Escape") onSelect(undefined);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey) && count > 0) {
      setAnchor(1);
      onSelect(count);
      event.preventDefault();
    }
  };
  const onCopy = (event: ClipboardEvent) => {
    const lines = copiedLines(range);
    if (!lines) return;
    event.clipboardData.setData("text/plain", `${store.texts(lines[0] - 1, lines[1] - 1)}\n`);
    event.preventDefault();
  };

  const digits = String(count).length;
  return (
    <div
      ref={frame}
      className={`log-frame digits-${Math.min(8, Math.max(3, digits))}`}
      role="group"
      aria-label={t("log_label")}
      tabIndex={0}
      onScroll={onScroll}
      onKeyDown={onKeyDown}
      onCopy={onCopy}
    >
      {count === 0 ? <p className="log-empty">{store.end ? t("empty_log") : t("waiting_log")}</p> : null}
      <div className="rows-space" style={{ height: rows.height }}>
        <div className="log-rows" style={{ transform: `translateY(${rows.top}px)` }}>
          {Array.from({ length: Math.max(0, rows.end - rows.first) }, (_, index) => rows.first + index).map((row) => (
            <Row
              key={row}
              row={row}
              line={store.line(row)}
              showStep={showSteps}
              times={times}
              found={found}
              chosen={isChosen(row)}
              onChoose={choose}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

/** Selected text is copied in whole lines, those that were not drawn too; within a line it is copied as it is. */
function copiedLines(range: number[] | undefined): [number, number] | undefined {
  const selection = window.getSelection();
  if (!selection || selection.isCollapsed) {
    return range ? [range[0] ?? 1, range[1] ?? 1] : undefined;
  }
  const from = rowAt(selection.anchorNode);
  const to = rowAt(selection.focusNode);
  if (from === undefined || to === undefined || from === to) return undefined;
  return [Math.min(from, to), Math.max(from, to)];
}

function rowAt(node: Node | null): number | undefined {
  const element = node instanceof Element ? node : node?.parentElement;
  const row = element?.closest<HTMLElement>("[data-line]")?.dataset.line;
  return row ? Number(row) : undefined;
}

interface RowProps {
  row: number;
  line: LogLine;
  showStep: boolean;
  times: boolean;
  found: RegExp | undefined;
  chosen: boolean;
  onChoose: (row: number, extend: boolean) => void;
}

function Row({ row, line, showStep, times, found, chosen, onChoose }: RowProps) {
  const t = useMessages(runMessages);
  const language = useLanguage();
  const text = afterReturn(line.text);
  const more = text.length - LONG;
  return (
    <div className={`log-row stream-${line.stream} level-${line.level}${chosen ? " chosen" : ""}`} data-line={row + 1}>
      <a
        href={`#L${row + 1}`}
        className="log-number"
        tabIndex={-1}
        onClick={(event) => {
          event.preventDefault();
          onChoose(row, event.shiftKey);
        }}
      >
        {row + 1}
      </a>
      {times ? <span className="log-time">{timeText(line.at)}</span> : null}
      <span className="log-mark" title={line.stream} aria-label={line.stream === "stdout" ? undefined : line.stream}>
        {{ stdout: "", stderr: "E", system: "●" }[line.stream]}
      </span>
      {showStep ? <span className="log-step">{line.step}</span> : null}
      <AnsiText text={more > 0 ? text.slice(0, LONG) : text} found={found} />
      {more > 0 ? (
        <button type="button" className="log-more" tabIndex={-1} onClick={() => onChoose(row, false)}>
          {t("more_characters", { n: more.toLocaleString(language) })}
        </button>
      ) : null}
    </div>
  );
}

/** As a terminal leaves it, which goes back to the beginning of the line: the end of a progress bar. */
function afterReturn(text: string): string {
  const end = text.endsWith("\r") ? text.slice(0, -1) : text;
  return end.slice(end.lastIndexOf("\r") + 1);
}

function timeText(at: string): string {
  const date = new Date(at);
  const two = (value: number) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
