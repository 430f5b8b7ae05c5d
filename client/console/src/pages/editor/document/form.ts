import { isMap, isSeq, type YAMLMap } from "yaml";
import { itemText, withField, WORKFLOW_ORDER } from "./fields";
import { columnOf, endOf, lineCounter, parseSource, pairOf, scalarText, startOf, valueOf } from "./source";
import { isName, kindOf, type StepKind, type StepsKind, type StepSource, stepId, stepsOf, targetKey } from "./steps";

/** A step as the form shows it. */
export interface StepForm {
  id: string;
  /** What the field of the name has. */
  name: string;
  title: string;
  kind: StepKind;
  target: string;
  args: string[];
  dependsOn: string[];
  /** Whether it says itself what it depends on. */
  hasDependsOn: boolean;
  timeout: string;
  onFailure: string;
  maxRetries: string;
  /** The first and the last line, from 1. */
  lines: [number, number];
  /** Whether the form can change it: an alias or a text cannot be. */
  editable: boolean;
  /** Fields whose values are more than the form can show, such as a mapping. */
  complex: ReadonlySet<string>;
}

export interface Form {
  id: string;
  name: string;
  title: string;
  description: string;
  timezone: string;
  /** A crontab expression; undefined if the schedule is a mapping or a list, see `scheduleText`. */
  schedule: string | undefined;
  /** Schedules of other forms, as they are written. */
  scheduleSource: string;
  steps: StepForm[];
  stepsKind: StepsKind;
  error: { message: string; line: number } | undefined;
}

export function readForm(text: string): Form {
  const source = parseSource(text);
  const { workflow } = source;
  const get = (key: string) => (workflow && scalarText(valueOf(workflow, key))) ?? "";
  const schedule = workflow && valueOf(workflow, "schedule");
  const all = stepsOf(workflow);
  const lineOf = lineCounter(text);
  return {
    id: get("id"),
    name: get("name"),
    title: get("title"),
    description: get("description"),
    timezone: get("timezone"),
    schedule: isMap(schedule) || isSeq(schedule) ? undefined : get("schedule"),
    scheduleSource: schedule ? outdented(text, startOf(schedule), endOf(schedule)) : "",
    steps: all.steps.map((each) => stepForm(each, lineOf)),
    stepsKind: all.kind,
    error: source.error && { message: source.error.message, line: lineOf(source.error.offset) },
  };
}

/** The lines of a value, as if it began at the margin. */
function outdented(text: string, from: number, to: number): string {
  const margin = new RegExp(`^ {0,${columnOf(text, from)}}`, "gm");
  return text.slice(from, to).trimEnd().replace(margin, "");
}

function stepForm(step: StepSource, lineOf: (offset: number) => number): StepForm {
  const { map } = step;
  const get = (key: string) => (map && scalarText(valueOf(map, key))) ?? "";
  const complex = new Set<string>();
  const list = (key: string) => textsOf(map, key, complex);
  const target = map ? targetKey(map) : "run";
  const from = step.key ? startOf(step.key.key) : startOf(step.node);
  const to = Math.max(from, (step.node?.range?.[1] ?? from) - 1);
  for (const key of [target, "timeout", "on_failure", "max_retries"]) {
    const value = map && valueOf(map, key);
    if (isMap(value) || isSeq(value)) complex.add(key === target ? "target" : key);
  }
  const id = stepId(step);
  return {
    id,
    name: step.key ? id : get("name") || id,
    title: get("title") || get("name") || id,
    kind: map ? kindOf(map) : "shell",
    target: get(target),
    args: list("args"),
    dependsOn: list("depends_on"),
    hasDependsOn: Boolean(map && pairOf(map, "depends_on")),
    timeout: get("timeout"),
    onFailure: get("on_failure") || get("on_fail"),
    maxRetries: get("max_retries"),
    lines: [lineOf(from), lineOf(to)],
    editable: Boolean(map),
    complex,
  };
}

function textsOf(map: YAMLMap | undefined, key: string, complex: Set<string>): string[] {
  const value = map && valueOf(map, key);
  if (isSeq(value)) return value.items.map(itemText);
  if (value && scalarText(value) !== undefined) return [scalarText(value) ?? ""];
  if (isMap(value)) complex.add(key);
  return [];
}

/** Sets a field of the workflow. */
export function withWorkflowField(text: string, key: string, value: string): string {
  const { workflow } = parseSource(text);
  if (workflow) return withField(text, workflow, key, value, WORKFLOW_ORDER);
  return value === "" ? text : `${key}: ${JSON.stringify(value)}\n${text}`;
}

/** What each step waits for: in a sequence the one before it, unless it says something else. */
export function dependenciesOf(form: Form): string[][] {
  return form.steps.map((each, at) => {
    if (each.hasDependsOn || form.stepsKind !== "list") return each.dependsOn;
    const before = form.steps[at - 1];
    return before ? [stepKey(before, at - 1)] : [];
  });
}

/** Names a step within this page: its id, or its place if the daemon makes the id. */
export function stepKey(step: StepForm, at: number): string {
  return step.id || `#${at + 1}`;
}

/** A name that no step has yet, such as `step-3`. */
export function freeStepName(form: Form): string {
  const taken = new Set(form.steps.flatMap((each) => [each.id, each.name]));
  let number = form.steps.length + 1;
  while (taken.has(`step-${number}`)) number += 1;
  return `step-${number}`;
}

/** The id under which the workflow is stored. */
export function workflowId(form: Form): string {
  return form.id || form.name;
}

export function needsId(form: Form): boolean {
  return !form.id && form.name !== "" && !isName(form.name);
}
