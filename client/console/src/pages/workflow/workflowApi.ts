import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, data, requestId, type Schemas } from "~/api/client";
import { VIEWER_ZONE } from "~/parts/timeText";

export type Workflow = Schemas["Workflow"];
export type GridRun = Schemas["GridRun"];
export type WorkflowVersion = Schemas["WorkflowVersion"];

const GRID = 30;
const NEXT = 12;
const VERSIONS = 50;

export function readWorkflow(name: string): Promise<Workflow> {
  return data(api.GET("/api/workflows/{name}", { params: { path: { name } } }));
}

export function workflowQuery(name: string) {
  return queryOptions({ queryKey: ["workflows", "one", name], queryFn: () => readWorkflow(name) });
}

export function gridQuery(workflow: string) {
  return queryOptions({
    queryKey: ["runs", "grid", workflow],
    queryFn: () =>
      data(api.GET("/api/workflows/{workflow}/grid", { params: { path: { workflow }, query: { page_size: GRID } } })),
  });
}

export function runsByDayQuery(workflow: string) {
  return queryOptions({
    queryKey: ["runs", "by-day", workflow],
    queryFn: () =>
      data(api.GET("/api/runs_by_day", { params: { query: { workflow, timezone: VIEWER_ZONE, days: 371 } } })),
    staleTime: 60_000,
  });
}

export function dueTimesQuery(workflow: string) {
  return queryOptions({
    queryKey: ["workflows", "next", workflow],
    queryFn: () =>
      data(api.GET("/api/workflows/{workflow}/next", { params: { path: { workflow }, query: { count: NEXT } } })),
  });
}

export function versionsQuery(workflow: string) {
  return infiniteQueryOptions({
    queryKey: ["workflows", "versions", workflow],
    queryFn: ({ pageParam }) =>
      data(
        api.GET("/api/workflows/{workflow}/versions", {
          params: { path: { workflow }, query: { page_size: VERSIONS, page_token: pageParam } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

export function versionQuery(workflow: string, version: number) {
  return queryOptions({
    queryKey: ["workflow-version", workflow, version],
    queryFn: () =>
      data(api.GET("/api/workflows/{workflow}/versions/{version}", { params: { path: { workflow, version } } })),
    staleTime: Infinity,
  });
}

export function restoreVersion(workflow: Workflow, version: number): Promise<WorkflowVersion> {
  const path = { workflow: workflow.name, version };
  const header = { "Idempotency-Key": requestId(), "If-Match": `"${workflow.etag}"` };
  return data(api.POST("/api/workflows/{workflow}/versions/{version}/restore", { params: { path, header }, body: {} }));
}

export function setEnabled(name: string, enabled: boolean): Promise<Workflow> {
  const params = { params: { path: { name } } };
  return data(
    enabled ? api.POST("/api/workflows/{name}/enable", params) : api.POST("/api/workflows/{name}/disable", params),
  );
}

export async function deleteWorkflow(workflow: Workflow): Promise<void> {
  const header = { "If-Match": `"${workflow.etag}"` };
  await api.DELETE("/api/workflows/{name}", { params: { path: { name: workflow.name }, header } });
}
