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
  queryFn: () => data(api.GET("/api/approvals")),
});

export interface Approval {
  run: Run;
  step: Schemas["Step"];
}

export type DeadLetter = Schemas["DeadLetter"];

export function deadLettersQuery(states: NonNullable<DeadLetter["state"]>[]) {
  return infiniteQueryOptions({
    queryKey: ["dead_letters", states],
    queryFn: ({ pageParam }) =>
      data(api.GET("/api/dead_letters", { params: { query: { states, page_size: PAGE, page_token: pageParam } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

export type Secret = Schemas["Secret"];

export const secretsQuery = infiniteQueryOptions({
  queryKey: ["secrets"],
  queryFn: ({ pageParam }) =>
    data(api.GET("/api/secrets", { params: { query: { page_size: PAGE, page_token: pageParam } } })),
  initialPageParam: "",
  getNextPageParam: (page) => page.next_page_token || undefined,
});

export type Event = Schemas["Event"];
export type EventRun = Schemas["EventRun"];

export function eventsQuery(types: string[]) {
  return infiniteQueryOptions({
    queryKey: ["events", "list", types],
    queryFn: ({ pageParam }) =>
      data(api.GET("/api/events", { params: { query: { types, page_size: PAGE, page_token: pageParam } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

export function eventQuery(id: string) {
  return queryOptions({
    queryKey: ["events", "one", id],
    queryFn: () => data(api.GET("/api/events/{id}", { params: { path: { id } } })),
  });
}

/** What an event started, the events of these runs, and so on. */
export function eventChainQuery(id: string) {
  return queryOptions({
    queryKey: ["events", "chain", id],
    queryFn: () => data(api.GET("/api/events/{id}/chain", { params: { path: { id } } })),
  });
}

export type Schedule = Schemas["Schedule"];

export function schedulesQuery(filter: { subject?: string | undefined; include_ended?: boolean | undefined }) {
  return infiniteQueryOptions({
    queryKey: ["schedules", filter],
    queryFn: ({ pageParam }) =>
      data(api.GET("/api/schedules", { params: { query: { ...filter, page_size: PAGE, page_token: pageParam } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

/** What words such as “in 3 days at 9am” mean now. */
export function timeInWordsQuery(words: string, timezone: string) {
  return queryOptions({
    queryKey: ["schedules", "words", words, timezone],
    queryFn: () => data(api.POST("/api/schedules/interpret", { body: { words, timezone } })),
    enabled: words.trim() !== "",
    retry: false,
  });
}

export type Fire = Schemas["Fire"];

export function firesQuery(workflow: string) {
  return infiniteQueryOptions({
    queryKey: ["runs", "fires", workflow],
    queryFn: ({ pageParam }) =>
      data(api.GET("/api/fires", { params: { query: { workflow, page_size: PAGE, page_token: pageParam } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}

export function whyQuery(workflow: string, at: string) {
  return queryOptions({
    queryKey: ["runs", "why", workflow, at],
    queryFn: () =>
      data(
        api.GET("/api/workflows/{workflow}/why", {
          params: { path: { workflow }, query: at ? { at } : {} },
        }),
      ),
  });
}

/** Workflows and jobs with a next due time, the earliest first. */
export const upcomingQuery = queryOptions({
  queryKey: ["workflows", "upcoming"],
  queryFn: async () => {
    const page = await data(api.GET("/api/workflow_summaries", { params: { query: { page_size: 1000 } } }));
    const due = page.summaries.filter((each) => each.next_due && each.enabled);
    due.sort((one, other) => Date.parse(one.next_due ?? "") - Date.parse(other.next_due ?? ""));
    return { due, complete: !page.next_page_token };
  },
});

export function jobQuery(name: string) {
  return queryOptions({
    queryKey: ["workflows", "job", name],
    queryFn: () => data(api.GET("/api/jobs/{name}", { params: { path: { name } } })),
  });
}

export const configQuery = queryOptions({
  queryKey: ["config"],
  queryFn: async () => (await data(api.GET("/api/system/config"))).values,
});

export const locksQuery = queryOptions({
  queryKey: ["runs", "locks"],
  queryFn: async () => (await data(api.GET("/api/system/locks"))).locks,
});

export const accessQuery = queryOptions({
  queryKey: ["access"],
  queryFn: () => data(api.GET("/api/access")),
});

export const tokensQuery = infiniteQueryOptions({
  queryKey: ["tokens"],
  queryFn: ({ pageParam }) =>
    data(api.GET("/api/access/tokens", { params: { query: { page_size: PAGE, page_token: pageParam } } })),
  initialPageParam: "",
  getNextPageParam: (page) => page.next_page_token || undefined,
});

export const sessionsQuery = infiniteQueryOptions({
  queryKey: ["sessions"],
  queryFn: ({ pageParam }) =>
    data(api.GET("/api/access/sessions", { params: { query: { page_size: PAGE, page_token: pageParam } } })),
  initialPageParam: "",
  getNextPageParam: (page) => page.next_page_token || undefined,
});

export interface AuditFilter {
  actor?: string | undefined;
  method?: string | undefined;
  target?: string | undefined;
  outcome?: "done" | "refused" | undefined;
}

export function auditQuery(filter: AuditFilter) {
  return infiniteQueryOptions({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam }) =>
      data(api.GET("/api/audit", { params: { query: { ...filter, page_size: PAGE, page_token: pageParam } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token || undefined,
  });
}
