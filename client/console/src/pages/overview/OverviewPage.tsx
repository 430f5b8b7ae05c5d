import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "~/api/client";
import { approvalsQuery, overviewQuery, type Run, systemQuery } from "~/api/queries";
import { useIsNarrowed, useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { WorkflowTable } from "~/pages/workflows/WorkflowTable";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { RunLink } from "~/parts/RunLink";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { overviewMessages } from "./messages";
import "./overview.css";

type Overview = Schemas["GetOverviewResponse"];

/** Failures are counted up to here. */
const COUNTED = 1000;

export function OverviewPage() {
  const t = useMessages(overviewMessages);
  const query = useQuery(overviewQuery);
  const mayEdit = useMay("editor");
  return (
    <div className="page">
      <PageHead title={t("title")}>
        {mayEdit ? (
          <Link to="/workflows/new" className="button primary">
            {t("create")}
          </Link>
        ) : null}
      </PageHead>
      <QueryView query={query}>{(overview) => <Content overview={overview} />}</QueryView>
    </div>
  );
}

function Content({ overview }: { overview: Overview }) {
  const t = useMessages(overviewMessages);
  return (
    <>
      <Numbers overview={overview} />
      {overview.workflow_count + overview.job_count === 0 ? (
        <section className="card">
          <EmptyState title={t("empty_title")} command="toban apply workflow.yaml">
            {t("empty")}
          </EmptyState>
        </section>
      ) : (
        <div className="overview-columns">
          <Failures runs={overview.failures} />
          <section className="card">
            <div className="card-head">
              <div>
                <h2>{t("now")}</h2>
                <p className="muted">{t("now_hint")}</p>
              </div>
              <Link to="/workflows">{t("all")}</Link>
            </div>
            <WorkflowTable label={t("now")} summaries={overview.summaries} />
          </section>
        </div>
      )}
    </>
  );
}

function Numbers({ overview }: { overview: Overview }) {
  const t = useMessages(overviewMessages);
  const approvals = useQuery(approvalsQuery).data?.approvals.length;
  const health = useQuery(systemQuery).data?.health;
  const narrowed = useIsNarrowed();
  const failures = overview.failure_count;
  return (
    <ul className="numbers">
      <li>
        <Link to="/runs" search={{ states: ["running"] }} className="card number-card">
          <span className="number-value tone-busy">{overview.running}</span>
          <span>{t("running")}</span>
        </Link>
      </li>
      <li>
        <Link to="/runs" search={{ states: ["pending"] }} className="card number-card">
          <span className="number-value">{overview.waiting}</span>
          <span>{t("waiting")}</span>
        </Link>
      </li>
      <li>
        <Link to="/approvals" className="card number-card">
          <span className={approvals ? "number-value tone-wait" : "number-value"}>{approvals ?? "–"}</span>
          <span>{t("approvals")}</span>
        </Link>
      </li>
      <li>
        <Link to="/runs" search={{ states: ["failed", "timed_out"] }} className="card number-card">
          <span className={failures ? "number-value tone-bad" : "number-value tone-ok"}>
            {failures >= COUNTED ? t("many", { n: failures }) : failures}
          </span>
          <span>{t("failures")}</span>
        </Link>
      </li>
      <li>
        <Link to="/workflows" className="card number-card">
          <span className="number-value">{overview.workflow_count.toLocaleString()}</span>
          <span>
            {t("workflows")}
            <span className="muted">
              {overview.disabled_count ? ` · ${t("disabled", { n: overview.disabled_count })}` : ""}
              {overview.job_count ? ` · ${t("jobs", { n: overview.job_count })}` : ""}
            </span>
          </span>
        </Link>
      </li>
      <li>
        <Link to="/system" className="card number-card">
          <span className="number-value">
            <StateBadge state={health?.status ?? "unknown"} />
          </span>
          <span>
            {t("daemon")}
            <span className="muted">
              {!narrowed && health?.conditions?.length ? ` · ${t("problems", { n: health.conditions.length })}` : ""}
            </span>
          </span>
        </Link>
      </li>
    </ul>
  );
}

function Failures({ runs }: { runs: Run[] }) {
  const t = useMessages(overviewMessages);
  const w = useMessages(words);
  const columns: Column<Run>[] = [
    { key: "run", header: w("run"), cell: (run) => <RunLink run={run} /> },
    { key: "state", header: w("state"), className: "fit", cell: (run) => <StateBadge state={run.state} /> },
    { key: "reason", header: w("reason"), cell: (run) => <span className="clamp">{run.error_message}</span> },
    {
      key: "when",
      header: w("when"),
      className: "fit end",
      cell: (run) => <Time at={run.finished_at ?? run.created_at} relative />,
    },
  ];
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("what_failed")}</h2>
        <Link to="/runs">{t("all_runs")}</Link>
      </div>
      {runs.length > 0 ? (
        <DataTable label={t("what_failed")} columns={columns} rows={runs} rowKey={(run) => run.id} />
      ) : (
        <p className="quiet-line">{t("nothing_failed")}</p>
      )}
    </section>
  );
}
