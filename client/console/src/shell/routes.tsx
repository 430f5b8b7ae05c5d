import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { OverviewPage } from "~/pages/overview/OverviewPage";
import { runsSearch } from "~/pages/runs/search";
import { Loading } from "~/parts/Loading";
import { ComingPage } from "./ComingPage";
import { FailedPage } from "./FailedPage";
import { Layout } from "./Layout";
import { NotFoundPage } from "./NotFoundPage";

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
  component: lazyRouteComponent(() => import("~/pages/run/RunPage"), "RunPage"),
});

const approvals = createRoute({ getParentRoute: () => root, path: "/approvals", component: ComingPage });
const schedules = createRoute({ getParentRoute: () => root, path: "/schedules", component: ComingPage });
const events = createRoute({ getParentRoute: () => root, path: "/events", component: ComingPage });
const deadLetters = createRoute({ getParentRoute: () => root, path: "/dead_letters", component: ComingPage });
const jobs = createRoute({ getParentRoute: () => root, path: "/jobs", component: ComingPage });
const job = createRoute({ getParentRoute: () => root, path: "/jobs/$name", component: ComingPage });
const secrets = createRoute({ getParentRoute: () => root, path: "/secrets", component: ComingPage });
const access = createRoute({ getParentRoute: () => root, path: "/access", component: ComingPage });
const system = createRoute({ getParentRoute: () => root, path: "/system", component: ComingPage });

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
