import type { CodeProblem } from "~/parts/code/YamlEditor";
import type { Form } from "./document/form";

/** Problems by the field of the form that they belong to. */
export interface FieldProblems {
  workflow: Map<string, CodeProblem[]>;
  steps: Map<number, Map<string, CodeProblem[]>>;
}

const STEP = /^(?:[^.]+\.)??steps(?:\.([^.[\]]+)|\[(\d+)\])?(?:\.([a-z_]+))?/;
/** Fields that the form shows as one. */
const SHOWN: Record<string, string> = {
  run: "target",
  job: "target",
  job_id: "target",
  id: "name",
  on_fail: "on_failure",
};

export function fieldProblems(form: Form, problems: readonly CodeProblem[]): FieldProblems {
  const found: FieldProblems = { workflow: new Map(), steps: new Map() };
  for (const problem of problems) {
    const step = stepOf(form, problem);
    if (step) {
      const fields = found.steps.get(step.at) ?? new Map<string, CodeProblem[]>();
      found.steps.set(step.at, put(fields, step.field, problem));
    } else {
      put(found.workflow, /^[a-z_]*/.exec(problem.path ?? "")?.[0] ?? "", problem);
    }
  }
  return found;
}

function stepOf(form: Form, problem: CodeProblem): { at: number; field: string } | undefined {
  const path = STEP.exec(problem.path ?? "");
  if (!path) return undefined;
  const byId = path[1] ? form.steps.findIndex((each) => each.id === path[1]) : -1;
  const byPlace = path[2] ? Number(path[2]) : -1;
  const line = problem.line ?? 0;
  const byLine = form.steps.findIndex((each) => each.lines[0] <= line && line <= each.lines[1]);
  const at = [byLine, byId, byPlace].find((each) => each >= 0 && each < form.steps.length);
  const field = path[3] ?? "";
  return at === undefined ? undefined : { at, field: SHOWN[field] ?? field };
}

function put(map: Map<string, CodeProblem[]>, key: string, problem: CodeProblem): Map<string, CodeProblem[]> {
  return map.set(key, [...(map.get(key) ?? []), problem]);
}
