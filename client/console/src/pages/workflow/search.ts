export type WorkflowTab = "overview" | "schedule" | "versions";
export const WORKFLOW_TABS: readonly WorkflowTab[] = ["overview", "schedule", "versions"];

export interface WorkflowSearch {
  tab?: WorkflowTab;
  /** The two versions that are compared. */
  from?: number;
  to?: number;
}

/** The part of the page in its address. What is not understood is left out. */
export function workflowSearch(given: Record<string, unknown>): WorkflowSearch {
  const tab = WORKFLOW_TABS.find((each) => each === given.tab);
  const number = (value: unknown) => (Number.isInteger(value) && Number(value) > 0 ? Number(value) : undefined);
  const [from, to] = [number(given.from), number(given.to)];
  return { ...(tab ? { tab } : {}), ...(from ? { from } : {}), ...(to ? { to } : {}) };
}
