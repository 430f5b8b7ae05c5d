import { queryOptions, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, data, type Schemas } from "~/api/client";
import { Problem } from "~/api/problem";
import type { Run } from "~/api/queries";
import { onRunChange } from "~/api/stream";

export type Step = Schemas["Step"];
export type Process = Schemas["ProcessExecution"];
/** With all of its steps. */
export type WholeRun = Run;

const PAGE = 1000;
const SOON = 150;
/** Reading a run of thousands of steps takes a while: most of the time is left for other things. */
const SHARE = 4;
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The id of a run by its id, a part of that, or its name such as `nightly#12`. */
export function runIdQuery(given: string) {
  return queryOptions({
    queryKey: ["run id", given],
    queryFn: () => foundId(given),
    staleTime: Infinity,
    ...(ID.test(given) ? { initialData: given } : {}),
  });
}

async function foundId(given: string): Promise<string> {
  const [, workflow, number] = /^(.+)#(\d+)$/.exec(given) ?? [];
  let found: string[];
  if (workflow && number) {
    const query = { workflow, number: Number(number), page_size: 1 };
    const page = await data(api.GET("/api/workflow_runs", { params: { query } }));
    found = page.runs.map((run) => run.id);
  } else {
    const page = await data(api.GET("/api/ids", { params: { query: { kind: "run", part: given } } }));
    found = page.ids;
  }
  const [id, another] = found;
  if (id && !another) return id;
  throw new Problem(404, {
    reason: "RUN_NOT_FOUND",
    detail: another ? `several runs match ${given}` : `no run ${given}`,
  });
}

export function wholeRunQuery(id: string) {
  return queryOptions({ queryKey: ["run", id, "steps"], queryFn: () => wholeRun(id) });
}

async function wholeRun(id: string): Promise<WholeRun> {
  const page = (token: string) =>
    data(
      api.GET("/api/workflow_runs/{id}", {
        params: { path: { id }, query: { step_page_size: PAGE, step_page_token: token } },
      }),
    );
  const run = await page("");
  const steps = [...run.steps];
  for (let token = run.next_step_page_token; token;) {
    const next = await page(token);
    steps.push(...next.steps);
    token = next.next_step_page_token;
  }
  return { ...run, steps };
}

/** The attempts of all steps, oldest first. */
export function processesQuery(runId: string) {
  return queryOptions({
    queryKey: ["run", runId, "processes"],
    queryFn: async () => {
      const found: Process[] = [];
      let token = "";
      do {
        const query = { run_id: runId, page_size: PAGE, page_token: token };
        const page = await data(api.GET("/api/process_logs", { params: { query } }));
        found.push(...page.process_executions);
        token = page.next_page_token;
      } while (token);
      return found.reverse();
    },
  });
}

export function artifactsQuery(runId: string) {
  return queryOptions({
    queryKey: ["run", runId, "artifacts"],
    queryFn: async () => {
      const found: Schemas["StepArtifact"][] = [];
      let token = "";
      do {
        const query = { run_id: runId, page_size: PAGE, page_token: token };
        const page = await data(api.GET("/api/artifacts", { params: { query } }));
        found.push(...page.artifacts);
        token = page.next_page_token;
      } while (token);
      return found;
    },
  });
}

/** Other runs of the same workflow, to compare with. */
export function siblingsQuery(workflow: string) {
  return queryOptions({
    queryKey: ["runs", "siblings", workflow],
    queryFn: async () =>
      (await data(api.GET("/api/workflow_runs", { params: { query: { workflow, page_size: 50 } } }))).runs,
  });
}

/** The current version of its workflow; null if the workflow was deleted. */
export function currentVersionQuery(workflow: string) {
  return queryOptions({
    queryKey: ["workflows", "version", workflow],
    queryFn: async () => {
      try {
        return (await data(api.GET("/api/workflows/{name}", { params: { path: { name: workflow } } }))).version;
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return null;
        throw error;
      }
    },
  });
}

/** Shows each change of the run at once, and then reads its steps again: soon, and not too often. */
export function useLiveRun(id: string): void {
  const queries = useQueryClient();
  useEffect(() => {
    let timer: number | undefined;
    let wait = SOON;
    let reading = false;
    let changedAgain = false;
    const schedule = () => {
      changedAgain = reading;
      if (!reading) timer ??= window.setTimeout(() => void refresh(), wait);
    };
    const refresh = async () => {
      timer = undefined;
      reading = true;
      const began = performance.now();
      await queries.invalidateQueries({ queryKey: ["run", id] });
      wait = Math.max(SOON, (performance.now() - began) * SHARE);
      reading = false;
      if (changedAgain) schedule();
    };
    const stop = onRunChange(({ run }) => {
      if (run?.id !== id) return;
      const { params, ...changed } = run;
      queries.setQueryData<WholeRun>(["run", id, "steps"], (old) =>
        old
          ? {
              ...old,
              ...changed,
              ...(params && !run.params_bytes ? { params } : {}),
              steps: old.steps,
              ...(old.summary ? { summary: old.summary } : {}),
            }
          : old,
      );
      schedule();
    });
    return () => {
      stop();
      window.clearTimeout(timer);
    };
  }, [id, queries]);
}
