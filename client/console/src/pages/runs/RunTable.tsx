import type { Run } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { Duration } from "~/parts/Duration";
import { RunLink } from "~/parts/RunLink";
import { RunProgress } from "~/parts/RunProgress";
import { RunStateBadge } from "~/parts/RunState";
import { Time } from "~/parts/Time";
import { runsMessages } from "./messages";
import "./runs.css";

interface Props {
  label: string;
  runs: readonly Run[];
  hasMore?: boolean;
  loadingMore?: boolean;
  onMore?: () => void;
  onCancel?: (run: Run) => void;
  onRetry?: (run: Run) => void;
}

const RETRIED = new Set(["failed", "timed_out", "cancelled"]);

/** Runs in a list, on the page of runs and on others. */
export function RunTable({ label, runs, onCancel, onRetry, ...paging }: Props) {
  const t = useMessages(runsMessages);
  const w = useMessages(words);
  const columns: Column<Run>[] = [
    { key: "run", header: w("run"), cell: (run) => <Name run={run} /> },
    { key: "state", header: w("state"), className: "fit", cell: (run) => <RunStateBadge run={run} /> },
    { key: "about", header: w("details"), cell: (run) => <About run={run} /> },
    { key: "trigger", header: w("trigger"), labelled: true, cell: (run) => <Trigger run={run} /> },
    { key: "created", header: w("created"), className: "fit", cell: (run) => <Time at={run.created_at} /> },
    {
      key: "duration",
      header: w("duration"),
      className: "fit end",
      labelled: true,
      cell: (run) => (run.started_at ? <Duration from={run.started_at} to={run.finished_at} /> : null),
    },
  ];
  if (onCancel || onRetry) {
    columns.push({
      key: "action",
      header: "",
      className: "fit end",
      cell: (run) => {
        const name = `${run.workflow_title || run.workflow} #${run.number}`;
        if (!run.finished_at) {
          return run.cancel_requested_at ? null : (
            <button
              type="button"
              className="button small"
              aria-label={t("cancel_name", { name })}
              onClick={() => onCancel?.(run)}
            >
              {t("cancel")}
            </button>
          );
        }
        return RETRIED.has(run.state ?? "") ? (
          <button
            type="button"
            className="button small"
            aria-label={t("retry_name", { name })}
            onClick={() => onRetry?.(run)}
          >
            {t("retry")}
          </button>
        ) : null;
      },
    });
  }
  return <DataTable label={label} columns={columns} rows={runs} rowKey={(run) => run.id} {...paging} />;
}

function Name({ run }: { run: Run }) {
  const t = useMessages(runsMessages);
  return (
    <span className="workflow-name">
      <RunLink run={run} />
      {run.scope && run.scope !== "full" ? <span className="chip">{`${t("scope")}: ${run.scope}`}</span> : null}
      {Object.entries(run.labels).map(([key, value]) => (
        <span className="chip" key={key}>
          {value ? `${key}: ${value}` : key}
        </span>
      ))}
    </span>
  );
}

function About({ run }: { run: Run }) {
  const w = useMessages(words);
  const said = run.error_message !== run.state && run.state !== "succeeded";
  if (run.error_message && said) return <span className="clamp run-error">{run.error_message}</span>;
  if (run.finished_at) return null;
  const waiting = wordKey("wait_", run.waiting_for);
  return (
    <div className="stack tight">
      <RunProgress run={run} />
      {waiting ? <span className="sub">{w(waiting)}</span> : null}
    </div>
  );
}

function Trigger({ run }: { run: Run }) {
  const t = useMessages(runsMessages);
  const w = useMessages(words);
  const trigger = wordKey("trigger_", run.triggered_by);
  const named = run.triggered_by !== "schedule" && run.caller;
  return (
    <span title={named ? t("by", { caller: run.caller }) : undefined}>
      {trigger ? w(trigger) : null}
      {run.event_type ? <span className="sub"> {run.event_type}</span> : null}
    </span>
  );
}
