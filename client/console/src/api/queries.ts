import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { connection } from "./connection";

export type Run = Schemas["Run"];
export type RunState = NonNullable<Run["state"]>;
export type WorkflowSummary = Schemas["WorkflowSummary"];

/** The first word of a query's key is what the stream of changes says has changed: see stream.ts. */
const PAGE = 100;
const FOUND = 6;

export const systemQuery = queryOptions({
  queryKey: ["system"],
  queryFn: () => data(api.GET("/api/system")),
  // Says soon enough that the daemon is away, and that it is back.
  refetchInterval: () => (connection() === "connected" ? 10_000 : 2_000),
  retry: false,
});

export const overviewQuery = queryOptions({
  queryKey: ["runs", "overview"],
  queryFn: () => data(api.GET("/api/overview", { params: { query: { max_workflows: 30, max_failures: 8 } } })),
});

export interface WorkflowFilter {
  text?: string | undefined;
  kind?: "workflow" | "job" | undefined;
  labels?: string[] | undefined;
}

export function workflowSummariesQuery(filter: WorkflowFilter) {
  return infiniteQueryOptions({
    queryKey: ["workflows", "summaries", filter],
    queryFn: ({ pageParam }) =>
      data(
        api.GET("/api/workflow_summaries", {
          params: { query: { ...filter, page_size: PAGE, page_token: pageParam } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

export interface RunFilter {
  workflow?: string | undefined;
  states?: RunState[] | undefined;
  text?: string | undefined;
  created_after?: string | undefined;
  created_before?: string | undefined;
}

export function runsQuery(filter: RunFilter) {
  return infiniteQueryOptions({
    queryKey: ["runs", "list", filter],
    queryFn: ({ pageParam }) =>
      data(api.GET("/api/workflow_runs", { params: { query: { ...filter, page_size: PAGE, page_token: pageParam } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

/** For the command palette. */
export function workflowsFoundQuery(text: string) {
  return queryOptions({
    queryKey: ["workflows", "found", text],
    queryFn: async () => {
      const page = await data(api.GET("/api/workflow_summaries", { params: { query: { text, page_size: FOUND } } }));
      return page.summaries;
    },
  });
}

export function runsFoundQuery(text: string) {
  return queryOptions({
    queryKey: ["runs", "found", text],
    queryFn: async () => {
      const page = await data(api.GET("/api/workflow_runs", { params: { query: { text, page_size: FOUND } } }));
      return page.runs;
    },
  });
}

/** Steps that wait for a decision, with their runs. */
export const approvalsQuery = queryOptions({
  queryKey: ["runs", "approvals"],
  queryFn: async () => (await data(api.GET("/api/approvals"))).approvals,
});
