import type { GraphNode } from "~/parts/graph/layout";

/** A parameter of a workflow, as the daemon has read it. */
export interface Param {
  name: string;
  type: "string" | "integer" | "number" | "boolean" | "list" | "mapping";
  default?: unknown;
  has_default?: boolean;
  required?: boolean;
  choices?: unknown[];
  description?: string;
  secret?: boolean;
}

interface ParsedStep {
  id: string;
  name?: string;
  title?: string;
  job_type?: string;
  job?: string;
  target?: string;
  depends_on?: string[];
}

interface ParsedDefinition {
  params?: Param[];
  steps?: ParsedStep[];
}

/** The definition with ids and defaults; an empty one if it is too large for the answer. */
export function parsedDefinition(json: string | undefined): ParsedDefinition {
  try {
    return JSON.parse(json || "{}") as ParsedDefinition;
  } catch {
    return {};
  }
}

export function graphNodes(definition: ParsedDefinition, states: ReadonlyMap<string, string>): GraphNode[] {
  return (definition.steps ?? []).map((step) => ({
    id: step.id,
    title: step.title || step.name || step.id,
    note: step.job || (step.target ?? step.job_type ?? "").split("\n")[0],
    state: states.get(step.id),
    dependsOn: step.depends_on ?? [],
  }));
}
