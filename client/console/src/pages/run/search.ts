export const RUN_TABS = ["graph", "timeline", "log", "params", "artifacts", "resources", "history", "compare"] as const;
export type RunTab = (typeof RUN_TABS)[number];

export interface RunSearch {
  tab?: RunTab | undefined;
  /** The selected step, such as `build` or `build[3]`. */
  step?: string | undefined;
  /** The id of the run to compare with. */
  with?: string | undefined;
}

/** What is selected, in the address of the page. What is not understood is left out. */
export function runSearch(given: Record<string, unknown>): RunSearch {
  const text = (name: string) =>
    (typeof given[name] === "string" || typeof given[name] === "number") && given[name] !== ""
      ? String(given[name])
      : undefined;
  return { tab: RUN_TABS.find((each) => each === given.tab), step: text("step"), with: text("with") };
}
