import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { OverviewPage } from "~/pages/overview/OverviewPage";
import { runSearch } from "~/pages/run/search";
import { runsSearch } from "~/pages/runs/search";
import { workflowSearch } from "~/pages/workflow/search";
import { Loading } from "~/parts/Loading";
import { FailedPage } from "./FailedPage";
import { Layout } from "./Layout";
import { NotFoundPage } from "./NotFoundPage";
import { accessSearch, schedulesSearch, texts } from "./searches";

/** The address of every page. All but the first are loaded when they are opened. */
const root = createRootRoute({ component: Layout, notFoundComponent: NotFoundPage });

const overview = createRoute({ getParentRoute: () => root, path: "/", component: OverviewPage });

const workflows = createRoute({
  getParentRoute: () => root,
  path: "/workflows",
  validateSearch: (given: Record<string, unknown>): { text?: string | undefined; kind?: "workflow" | "job" } => ({
    text: typeof given.text === "string" && given.text ? given.text : undefined,
    ...(given.kind === "job" ? { kind: "job" } : {}),
  }),
  component: lazyRouteComponent(() => import("~/pages/workflows/WorkflowsPage"), "WorkflowsPage"),
});

const newWorkflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/new",
  component: lazyRouteComponent(() => import("~/pages/editor/EditorPage"), "EditorPage"),
});

const workflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$workflowId",
  validateSearch: workflowSearch,
  component: lazyRouteComponent(() => import("~/pages/workflow/WorkflowPage"), "WorkflowPage"),
});

const editWorkflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$workflowId/edit",
  component: lazyRouteComponent(() => import("~/pages/editor/EditorPage"), "EditorPage"),
});

const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  validateSearch: runsSearch,
  component: lazyRouteComponent(() => import("~/pages/runs/RunsPage"), "RunsPage"),
});

const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$runId",
  validateSearch: runSearch,
  component: lazyRouteComponent(() => import("~/pages/run/RunPage"), "RunPage"),
});

const approvals = createRoute({
  getParentRoute: () => root,
  path: "/approvals",
  component: lazyRouteComponent(() => import("~/pages/approvals/ApprovalsPage"), "ApprovalsPage"),
});

const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  validateSearch: schedulesSearch,
  component: lazyRouteComponent(() => import("~/pages/schedules/SchedulesPage"), "SchedulesPage"),
});

const events = createRoute({
  getParentRoute: () => root,
  path: "/events",
  validateSearch: (given: Record<string, unknown>): { types?: string } => texts(given, ["types"]),
  component: lazyRouteComponent(() => import("~/pages/events/EventsPage"), "EventsPage"),
});

const event = createRoute({
  getParentRoute: () => root,
  path: "/events/$eventId",
  component: lazyRouteComponent(() => import("~/pages/events/EventPage"), "EventPage"),
});

const deadLetters = createRoute({
  getParentRoute: () => root,
  path: "/dead_letters",
  validateSearch: (given: Record<string, unknown>): { all?: true } => (given.all === true ? { all: true } : {}),
  component: lazyRouteComponent(() => import("~/pages/deadLetters/DeadLettersPage"), "DeadLettersPage"),
});

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  component: lazyRouteComponent(() => import("~/pages/jobs/JobsPage"), "JobsPage"),
});

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$name",
  component: lazyRouteComponent(() => import("~/pages/jobs/JobPage"), "JobPage"),
});

const secrets = createRoute({
  getParentRoute: () => root,
  path: "/secrets",
  component: lazyRouteComponent(() => import("~/pages/secrets/SecretsPage"), "SecretsPage"),
});

const access = createRoute({
  getParentRoute: () => root,
  path: "/access",
  validateSearch: accessSearch,
  component: lazyRouteComponent(() => import("~/pages/access/AccessPage"), "AccessPage"),
});

const system = createRoute({
  getParentRoute: () => root,
  path: "/system",
  component: lazyRouteComponent(() => import("~/pages/system/SystemPage"), "SystemPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    workflows,
    newWorkflow,
    workflow,
    editWorkflow,
    runs,
    run,
    approvals,
    schedules,
    events,
    event,
    deadLetters,
    jobs,
    job,
    secrets,
    access,
    system,
  ]),
  defaultPreload: "intent",
  defaultPendingComponent: Loading,
  defaultErrorComponent: FailedPage,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
