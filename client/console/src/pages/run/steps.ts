import type { Step, WholeRun } from "./runQueries";

export const UNSUCCESSFUL: ReadonlySet<string> = new Set(["failed", "cancelled", "incomplete", "timed_out"]);

/** Its title and id, or its id alone. */
export function stepName(step: Step): string {
  return step.title && step.title !== step.id && !step.parent ? `${step.title} (${step.id})` : step.id;
}

/** What people call the state: a step that waits for a person says so. */
export function stepState(step: Step): string {
  if (step.finished_at) return step.state ?? "unknown";
  if (step.waiting_for === "approval") return "approval";
  if (step.state === "running" && step.waiting_for && step.waiting_for !== "processes") return "waiting";
  return step.state ?? "unknown";
}

/**
 * The step that explains why the run failed: the one that the run names, else the one that failed first. Of a `for_each`
 * step it is the instance.
 */
export function culprit(run: WholeRun): Step | undefined {
  const failed = run.steps.filter((step) => step.state === "failed" || step.state === "incomplete");
  const own = failed.filter((step) => step.instances === 0);
  const byEnd = (a: Step, b: Step) => (a.finished_at ?? "").localeCompare(b.finished_at ?? "");
  const names = (step: Step) =>
    run.error_message.startsWith(`step ${step.id} `) || run.error_message.includes(`(${step.id})`);
  const named = failed.find(names);
  if (named?.instances) return own.filter((step) => step.parent === named.id).sort(byEnd)[0] ?? named;
  const main = own.filter((step) => !step.is_finally);
  return named ?? main.sort(byEnd)[0] ?? own.sort(byEnd)[0] ?? failed[0];
}
