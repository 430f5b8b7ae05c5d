import type { RunFilter, RunState } from "~/api/queries";

export type RunsSearch = RunFilter;

export const RUN_STATES: readonly RunState[] = ["pending", "running", "succeeded", "failed", "timed_out", "cancelled"];

/** The filters in the address of the page. What is not understood is left out. */
export function runsSearch(given: Record<string, unknown>): RunsSearch {
  const text = (name: string) => (typeof given[name] === "string" && given[name] ? given[name] : undefined);
  const states = Array.isArray(given.states) ? given.states.filter((each) => RUN_STATES.includes(each)) : [];
  return {
    workflow: text("workflow"),
    states: states.length > 0 ? states : undefined,
    text: text("text"),
    created_after: text("created_after"),
    created_before: text("created_before"),
  };
}
