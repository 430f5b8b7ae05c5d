import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { useMessages } from "~/i18n/messages";
import { Loading } from "~/parts/Loading";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { workflowMessages } from "./messages";
import { graphNodes, parsedDefinition } from "./parsedDefinition";
import { RunsGrid } from "./RunsGrid";
import { YearOfRuns } from "./YearOfRuns";
import { gridQuery, type Workflow } from "./workflowApi";

const NARROW = window.matchMedia("(max-width: 700px)");
const StepGraph = lazy(async () => ({ default: (await import("~/parts/graph/StepGraph")).StepGraph }));

export function OverviewTab({ workflow }: { workflow: Workflow }) {
  const t = useMessages(workflowMessages);
  const grid = useQuery(gridQuery(workflow.name));
  const nodes = useMemo(() => {
    const newest = grid.data?.runs[0];
    const states = new Map<string, string>();
    for (const each of newest?.steps ?? []) states.set(grid.data?.steps[each.index] ?? "", each.state ?? "");
    return graphNodes(parsedDefinition(workflow.definition?.parsed_json), states);
  }, [workflow, grid.data]);
  return (
    <>
      <div className="workflow-top">
        <section className="card padded stack">
          <div>
            <h2>{t("graph")}</h2>
            {grid.data?.runs.length ? <p className="muted">{t("graph_hint")}</p> : null}
          </div>
          <div className="workflow-graph">
            {nodes.length ? (
              <Suspense fallback={<Loading />}>
                <StepGraph label={t("graph")} nodes={nodes} direction={NARROW.matches ? "DOWN" : "RIGHT"} />
              </Suspense>
            ) : null}
          </div>
        </section>
        <Facts workflow={workflow} />
      </div>
      <section className="card padded stack">
        <div>
          <h2>{t("grid")}</h2>
          <p className="muted">{t("grid_hint")}</p>
        </div>
        <QueryView query={grid}>{(found) => <RunsGrid steps={found.steps} runs={found.runs} />}</QueryView>
      </section>
      <YearOfRuns workflow={workflow.name} />
    </>
  );
}

function Facts({ workflow }: { workflow: Workflow }) {
  const t = useMessages(workflowMessages);
  const labels = Object.entries(workflow.labels);
  return (
    <section className="card padded stack workflow-facts">
      <h2>{t("facts")}</h2>
      <dl className="facts">
        <dt>{t("id")}</dt>
        <dd className="mono">{workflow.name}</dd>
        <dt>{t("version")}</dt>
        <dd className="number">{workflow.version}</dd>
        <dt>{t("updated")}</dt>
        <dd>
          <Time at={workflow.updated_at} />
        </dd>
        <dt>{t("owner")}</dt>
        <dd className={workflow.owner_path ? "mono" : undefined}>{workflow.owner_path || t("owner_api")}</dd>
        <dt>{t("schedule")}</dt>
        <dd>{workflow.schedules.length ? workflow.schedules.join(" · ") : t("never_due")}</dd>
        {workflow.next_due && workflow.enabled ? (
          <>
            <dt>{t("next")}</dt>
            <dd>
              <Time at={workflow.next_due} /> (<Time at={workflow.next_due} relative />)
            </dd>
          </>
        ) : null}
        {workflow.event_types.length ? (
          <>
            <dt>{t("events")}</dt>
            <dd className="mono">{workflow.event_types.join(", ")}</dd>
          </>
        ) : null}
        {labels.length ? (
          <>
            <dt>{t("labels")}</dt>
            <dd className="row">
              {labels.map(([key, value]) => (
                <span className="chip" key={key}>
                  {value ? `${key}: ${value}` : key}
                </span>
              ))}
            </dd>
          </>
        ) : null}
      </dl>
    </section>
  );
}
