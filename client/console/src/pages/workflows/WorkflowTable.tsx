import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { WorkflowSummary } from "~/api/queries";
import { useLanguage, useMessages } from "~/i18n/messages";
import { type Column, DataTable } from "~/parts/DataTable";
import { RunStateBadge } from "~/parts/RunState";
import { Time } from "~/parts/Time";
import { workflowsMessages } from "./messages";
import "./workflows.css";

interface Props {
  label: string;
  summaries: readonly WorkflowSummary[];
  /** A button at the end of each row. */
  action?: (summary: WorkflowSummary) => ReactNode;
  hasMore?: boolean;
  loadingMore?: boolean;
  onMore?: () => void;
}

/** Workflows and jobs in short, on the overview and on the page of workflows. */
export function WorkflowTable({ label, summaries, action, ...paging }: Props) {
  const t = useMessages(workflowsMessages);
  const columns: Column<WorkflowSummary>[] = [
    { key: "name", header: t("name"), cell: (each) => <Name summary={each} /> },
    { key: "last", header: t("last_run"), cell: (each) => <LastRun summary={each} /> },
    { key: "success", header: t("success"), labelled: true, cell: (each) => <SuccessRate summary={each} /> },
    { key: "active", header: t("active"), cell: (each) => <Active summary={each} /> },
    {
      key: "next",
      header: t("next"),
      labelled: true,
      className: "fit",
      cell: (each) => (each.next_due && each.enabled ? <Time at={each.next_due} zone={each.next_due_zone} /> : null),
    },
  ];
  if (action) columns.push({ key: "action", header: "", className: "fit end", cell: action });
  return <DataTable label={label} columns={columns} rows={summaries} rowKey={(each) => each.name} {...paging} />;
}

function Name({ summary }: { summary: WorkflowSummary }) {
  const t = useMessages(workflowsMessages);
  const titled = summary.title && summary.title !== summary.name;
  const inner = (
    <>
      {summary.title || summary.name}
      {titled ? <span className="sub mono"> {summary.name}</span> : null}
    </>
  );
  return (
    <span className="workflow-name">
      {summary.kind === "job" ? (
        <Link to="/jobs/$name" params={{ name: summary.name }} className="main">
          {inner}
        </Link>
      ) : (
        <Link to="/workflows/$workflowId" params={{ workflowId: summary.name }} className="main">
          {inner}
        </Link>
      )}
      {summary.kind === "job" ? <span className="chip">{t("job")}</span> : null}
      {summary.enabled ? null : <span className="chip">{t("off")}</span>}
      {Object.entries(summary.labels).map(([key, value]) => (
        <span className="chip" key={key}>
          {value ? `${key}: ${value}` : key}
        </span>
      ))}
    </span>
  );
}

function LastRun({ summary }: { summary: WorkflowSummary }) {
  const t = useMessages(workflowsMessages);
  const run = summary.last_run;
  if (!run) return <span className="muted">{t("never")}</span>;
  return (
    <Link to="/runs/$runId" params={{ runId: run.id }} className="plain-link row">
      <RunStateBadge run={run} />
      <Time at={run.finished_at ?? run.started_at ?? run.created_at} relative />
    </Link>
  );
}

function SuccessRate({ summary }: { summary: WorkflowSummary }) {
  const t = useMessages(workflowsMessages);
  const language = useLanguage();
  const { rated_runs: n, succeeded_runs: ok } = summary;
  if (!n) return null;
  const share = (ok / n).toLocaleString(language, { style: "percent" });
  return (
    <span className="success" title={t("success_label", { ok, n })}>
      <span className={ok === n ? "number" : "number weak"}>{share}</span>
      <span className="sub">{t("success_of", { ok, n })}</span>
    </span>
  );
}

function Active({ summary }: { summary: WorkflowSummary }) {
  const t = useMessages(workflowsMessages);
  if (!summary.running && !summary.waiting) return null;
  return (
    <span className="row">
      {summary.running ? <span className="chip tone-chip-busy">{t("running", { n: summary.running })}</span> : null}
      {summary.waiting ? <span className="chip">{t("waiting", { n: summary.waiting })}</span> : null}
    </span>
  );
}
