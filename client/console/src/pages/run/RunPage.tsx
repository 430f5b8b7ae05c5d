import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { lazy, type ReactNode, Suspense } from "react";
import { useMessages } from "~/i18n/messages";
import { EmptyState } from "~/parts/EmptyState";
import { Loading } from "~/parts/Loading";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { RunProgress } from "~/parts/RunProgress";
import { Problem } from "~/api/problem";
import { ApprovalPanel } from "./ApprovalPanel";
import { ArtifactsTab } from "./ArtifactsTab";
import { CompareTab } from "./CompareTab";
import { FailurePanel } from "./FailurePanel";
import { HistoryTab } from "./HistoryTab";
import { runMessages } from "./messages";
import { ParamsTab } from "./ParamsTab";
import { ResourcesTab } from "./ResourcesTab";
import { RunHead } from "./RunHead";
import { processesQuery, runIdQuery, useLiveRun, type WholeRun, wholeRunQuery } from "./runQueries";
import { RUN_TABS, type RunTab } from "./search";
import { StepPanel } from "./StepPanel";
import { useSelection } from "./selection";
import "./run.css";

const GraphTab = lazy(() => import("./GraphTab").then((module) => ({ default: module.GraphTab })));
const TimelineTab = lazy(() => import("./TimelineTab").then((module) => ({ default: module.TimelineTab })));
const LogTab = lazy(() => import("./log/LogTab").then((module) => ({ default: module.LogTab })));

/** One run: by its id, or by its name such as `nightly#12`. */
export function RunPage() {
  const { runId } = useParams({ from: "/runs/$runId" });
  const found = useQuery(runIdQuery(runId));
  if (found.error instanceof Problem && (found.error.status === 404 || found.error.status === 422)) {
    return <NoRun name={runId} />;
  }
  return (
    <div className="page">
      <QueryView query={found}>{(id) => <Run id={id} key={id} />}</QueryView>
    </div>
  );
}

function Run({ id }: { id: string }) {
  const query = useQuery(wholeRunQuery(id));
  useLiveRun(id);
  if (query.error instanceof Problem && query.error.status === 404 && !query.data) return <NoRun name={id} />;
  return <QueryView query={query}>{(run) => <RunView run={run} />}</QueryView>;
}

function NoRun({ name }: { name: string }) {
  const t = useMessages(runMessages);
  return (
    <div className="page">
      <PageHead title={name} />
      <section className="card">
        <EmptyState
          title={t("no_run", { name })}
          action={
            <Link to="/runs" className="button">
              {t("to_runs")}
            </Link>
          }
        >
          {t("no_run_text")}
        </EmptyState>
      </section>
    </div>
  );
}

function RunView({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const { tab, step, select } = useSelection();
  const processes = useQuery(processesQuery(run.id));
  const chosen = run.steps.find((each) => each.id === step);
  const withPanel = chosen && (tab === "graph" || tab === "timeline");
  return (
    <>
      <RunHead run={run} />
      <RunProgress run={run} />
      <ApprovalPanel run={run} />
      {tab === "log" ? null : <FailurePanel run={run} />}
      <section className="card">
        <nav className="tabs run-tabs" aria-label={t("views")}>
          {RUN_TABS.map((each) => (
            <Link
              key={each}
              from="/runs/$runId"
              search={(old) => ({ ...old, tab: each === "graph" ? undefined : each })}
              hash=""
              resetScroll={false}
              aria-current={each === tab ? "page" : undefined}
              activeOptions={{ exact: true, includeSearch: true }}
            >
              {t(`tab_${each}`)}
            </Link>
          ))}
        </nav>
        <div className={withPanel ? "run-body with-panel" : "run-body"}>
          <Suspense fallback={<Loading />}>
            <Tab tab={tab} run={run} processes={processes.data ?? []} />
          </Suspense>
          {withPanel ? (
            <StepPanel run={run} step={chosen} processes={processes.data ?? []} onClose={() => select(undefined)} />
          ) : null}
        </div>
      </section>
    </>
  );
}

interface TabProps {
  tab: RunTab;
  run: WholeRun;
  processes: Parameters<typeof ResourcesTab>[0]["processes"];
}

function Tab({ tab, run, processes }: TabProps): ReactNode {
  switch (tab) {
    case "graph":
      return <GraphTab run={run} />;
    case "timeline":
      return <TimelineTab run={run} processes={processes} />;
    case "log":
      return <LogTab run={run} />;
    case "params":
      return <ParamsTab run={run} />;
    case "artifacts":
      return <ArtifactsTab run={run} />;
    case "resources":
      return <ResourcesTab processes={processes} />;
    case "history":
      return <HistoryTab run={run} processes={processes} />;
    case "compare":
      return <CompareTab run={run} />;
  }
}
