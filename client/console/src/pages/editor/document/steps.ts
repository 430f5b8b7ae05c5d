import { isMap, isScalar, isSeq, type Node, type Pair, type YAMLMap, type YAMLSeq } from "yaml";
import {
  blockEnd,
  colonOf,
  dashOf,
  itemText,
  pairEnd,
  STEP_ORDER,
  withDeeperComments,
  withField,
  withList,
  withNewField,
  withoutField,
  withValue,
  WORKFLOW_ORDER,
} from "./fields";
import { scalar } from "./scalars";
import {
  columnOf,
  endOf,
  isFlow,
  keyText,
  lineStart,
  nextLine,
  pairOf,
  parseSource,
  scalarText,
  spliced,
  startOf,
  valueOf,
  withLines,
} from "./source";

/** One step as it is written. */
export interface StepSource {
  /** The mapping with its fields; undefined if it is an alias, or no mapping at all. */
  map: YAMLMap | undefined;
  node: Node | undefined;
  /** The key, if the steps are a mapping. */
  key: Pair<Node, Node | null> | undefined;
}

export type StepsKind = "list" | "mapping" | "none";

interface Steps {
  kind: StepsKind;
  node: YAMLSeq | YAMLMap | undefined;
  steps: StepSource[];
}

export function stepsOf(workflow: YAMLMap | undefined): Steps {
  const node = workflow && valueOf(workflow, "steps");
  if (isSeq(node)) {
    const steps = (node.items as Node[]).map((each) => ({
      map: isMap(each) ? each : undefined,
      node: each,
      key: undefined,
    }));
    return { kind: "list", node, steps };
  }
  if (isMap(node)) {
    const steps = (node.items as Pair<Node, Node | null>[]).map((each) => ({
      map: isMap(each.value) ? each.value : undefined,
      node: each.value ?? undefined,
      key: each,
    }));
    return { kind: "mapping", node, steps };
  }
  return { kind: "none", node: undefined, steps: [] };
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

export function isName(text: string): boolean {
  return NAME.test(text);
}

/** The id of a step, as far as its text says it: that of a name which cannot be one is made by the daemon. */
export function stepId(step: StepSource): string {
  if (step.key) return keyText(step.key);
  const own = (key: string) => (step.map ? scalarText(valueOf(step.map, key)) : undefined);
  const name = own("name");
  return own("id") ?? (name && isName(name) ? name : undefined) ?? (name ? "" : (own("job") ?? own("job_id") ?? ""));
}

/** A step as it is edited: the text is read anew, because places in it change with every edit. */
function opened(text: string, at: number): { workflow: YAMLMap; all: Steps; step: StepSource } | undefined {
  const { workflow } = parseSource(text);
  const all = stepsOf(workflow);
  const step = all.steps[at];
  return workflow && step ? { workflow, all, step } : undefined;
}

export function withStepField(
  text: string,
  at: number,
  key: string,
  value: string,
  kind: "text" | "word" = "text",
): string {
  const found = opened(text, at);
  return found?.step.map ? withField(text, found.step.map, key, value, STEP_ORDER, kind) : text;
}

export function withStepList(text: string, at: number, key: string, values: readonly string[]): string {
  const found = opened(text, at);
  const map = found?.step.map;
  if (!map) return text;
  const pair = pairOf(map, key);
  if (pair && values.length === 0) return withoutField(text, map, key);
  return values.length === 0 ? text : withList(text, map, key, values, STEP_ORDER);
}

/** Sets what a step waits for; undefined leaves it to the order of the steps. */
export function withDependsOn(text: string, at: number, ids: readonly string[] | undefined): string {
  const found = opened(text, at);
  const map = found?.step.map;
  if (!map) return text;
  if (ids === undefined || (ids.length === 0 && found.all.kind === "mapping"))
    return withoutField(text, map, "depends_on");
  return withList(text, map, "depends_on", ids, STEP_ORDER);
}

/** Gives a step another id or name, also where other steps depend on it. */
export function withStepName(text: string, at: number, name: string): string {
  const found = opened(text, at);
  if (!found) return text;
  const { step } = found;
  const old = stepId(step);
  if (step.key) {
    const key = step.key.key;
    const taken = found.all.steps.some((each) => each !== step && stepId(each) === name);
    if (!isName(name) || taken || !isScalar(key)) return text;
    return withDependencyRenamed(
      spliced(text, startOf(key), endOf(key), scalar(name, { indent: 0, flow: true }, key)),
      old,
      name,
    );
  }
  const renamed = withStepField(text, at, "name", name);
  const changed = opened(renamed, at);
  const now = changed ? stepId(changed.step) : old;
  return old && now && old !== now ? withDependencyRenamed(renamed, old, now) : renamed;
}

function withDependencyRenamed(text: string, old: string, now: string): string {
  return withDependencies(text, (ids) => ids.map((each) => (each === old ? now : each)));
}

/** Changes what each step depends on; a list that becomes empty stays, because it differs from none in a sequence. */
function withDependencies(text: string, change: (ids: string[]) => string[]): string {
  let changed = text;
  const count = stepsOf(parseSource(text).workflow).steps.length;
  for (let at = 0; at < count; at += 1) {
    const found = opened(changed, at);
    const map = found?.step.map;
    const list = map && valueOf(map, "depends_on");
    if (!map || !isSeq(list)) continue;
    const ids = list.items.map(itemText);
    const next = change(ids);
    if (next.join("\0") === ids.join("\0")) continue;
    changed = withDependsOn(changed, at, next);
  }
  return changed;
}

export type StepKind = "shell" | "exec" | "cmd" | "powershell" | "python" | "workflow" | "approval" | "wait" | "job";

export function kindOf(map: YAMLMap): StepKind {
  if (map.has("job") || map.has("job_id")) return "job";
  if (map.has("wait")) return "wait";
  return (scalarText(valueOf(map, "job_type")) as StepKind | undefined) ?? "shell";
}

/** The field that has what runs. */
export function targetKey(map: YAMLMap): string {
  const kind = kindOf(map);
  if (kind === "job") return map.has("job_id") ? "job_id" : "job";
  if (kind === "shell" && !map.has("target")) return "run";
  return "target";
}

/** Makes a step one of another kind: what runs stays, under the name that the kind has for it. */
export function withStepKind(text: string, at: number, kind: StepKind): string {
  const found = opened(text, at);
  const map = found?.step.map;
  if (!map || kindOf(map) === kind) return text;
  const target = scalarText(valueOf(map, targetKey(map))) ?? "";
  const old = targetKey(map);
  let changed = text;
  if (kind === "job" || kind === "shell") {
    changed = withStepField(changed, at, "job_type", "");
    changed = withStepKeyRenamed(
      changed,
      at,
      old,
      kind === "job" ? "job" : "run",
      kind === "job" && !isName(target) ? '""' : undefined,
    );
  } else {
    changed = withStepField(changed, at, "job_type", kind);
    const bare = kind === "approval" || kind === "wait";
    changed = bare ? withStepField(changed, at, old, "") : withStepKeyRenamed(changed, at, old, "target");
  }
  return kind === "wait" ? changed : withStepField(changed, at, "wait", "");
}

/** Renames a field in place, with its comment; adds an empty one if there is none. */
function withStepKeyRenamed(text: string, at: number, old: string, now: string, value?: string): string {
  const map = opened(text, at)?.step.map;
  if (!map) return text;
  const pair = pairOf(map, old);
  if (!pair) return withNewField(text, map, now, value ?? '""', STEP_ORDER);
  const kept = value === undefined ? text : withValue(text, pair, value);
  return old === now ? kept : spliced(kept, startOf(pair.key), endOf(pair.key), now);
}

/** The lines of a step in a block, with the comments right above it. */
interface Part {
  from: number;
  to: number;
}

function partsOf(text: string, all: Steps): Part[] {
  const { node } = all;
  if (!node) return [];
  if (isFlow(node)) {
    return all.steps.map((each) => ({
      from: each.key ? startOf(each.key.key) : startOf(each.node),
      to: each.key ? pairEnd(each.key) : endOf(each.node),
    }));
  }
  const heads = all.steps.map((each, at) => (each.key ? startOf(each.key.key) : dashOf(node as YAMLSeq, at)));
  const column = heads[0] === undefined ? 0 : columnOf(text, heads[0]);
  let last = 0;
  return all.steps.map((each, at) => {
    const head = heads[at] ?? 0;
    const end = each.key
      ? blockEnd(text, each.key, column)
      : withDeeperComments(text, nextLine(text, Math.max(endOf(each.node), head + 1)), column);
    const part = { from: withCommentsAbove(text, lineStart(text, head), column, last), to: withoutBlankEnd(text, end) };
    last = part.to;
    return part;
  });
}

function withCommentsAbove(text: string, from: number, column: number, least: number): number {
  let start = from;
  while (start > least) {
    const above = lineStart(text, start - 1);
    const line = text.slice(above, start);
    if (above < least || !/^ *#/.test(line) || line.search(/#/) !== column) break;
    start = above;
  }
  return start;
}

/** Blank lines behind the last one belong to what separates steps. */
function withoutBlankEnd(text: string, end: number): number {
  let to = end;
  while (to > 1 && text[to - 1] === "\n" && text[to - 2] === "\n") to -= 1;
  return to;
}

/** Exchanges a step and the one behind it. */
function withExchanged(text: string, first: number): string {
  const all = stepsOf(parseSource(text).workflow);
  const parts = partsOf(text, all);
  const a = parts[first];
  const b = parts[first + 1];
  if (!a || !b || !all.node) return text;
  const upper = text.slice(a.from, a.to);
  const lower = text.slice(b.from, b.to);
  const between = text.slice(a.to, b.from);
  if (isFlow(all.node)) return text.slice(0, a.from) + lower + between + upper + text.slice(b.to);
  const ended = lower.endsWith("\n");
  const moved = ended ? lower + between + upper : `${lower}\n${between}${upper.replace(/\n$/, "")}`;
  return text.slice(0, a.from) + moved + text.slice(b.to);
}

export function withStepMoved(text: string, at: number, by: 1 | -1): string {
  return withExchanged(text, by === 1 ? at : at - 1);
}

/** Removes a step, and takes its id out of what others depend on. */
export function withoutStep(text: string, at: number): string {
  const found = opened(text, at);
  if (!found) return text;
  const { all, step, workflow } = found;
  const { node } = all;
  if (!node) return text;
  const id = stepId(step);
  const parts = partsOf(text, all);
  const part = parts[at];
  if (!part) return text;
  let changed: string;
  if (all.steps.length === 1) {
    const pair = pairOf(workflow, "steps");
    changed = pair ? withValue(text, pair, all.kind === "list" ? "[]" : "{}") : text;
  } else if (isFlow(node)) {
    const next = parts[at + 1];
    changed = next
      ? spliced(text, part.from, next.from, "")
      : spliced(text, parts[at - 1]?.to ?? part.from, part.to, "");
  } else {
    const blank = /^\n+/.exec(text.slice(part.to))?.[0].length ?? 0;
    const before = /\n(\n*)$/.exec(text.slice(0, part.from))?.[1]?.length ?? 0;
    const isLast = at === all.steps.length - 1;
    changed = isLast ? spliced(text, part.from - before, part.to, "") : spliced(text, part.from, part.to + blank, "");
  }
  return id ? withDependencies(changed, (ids) => ids.filter((each) => each !== id)) : changed;
}

/** Adds a shell step at the end, in the form that the others have. */
export function withNewStep(text: string, name: string): string {
  const { workflow } = parseSource(text);
  if (!workflow) return `${text && !text.endsWith("\n") ? `${text}\n` : text}steps:\n${listed("  ", name)}`;
  const all = stepsOf(workflow);
  const pair = pairOf(workflow, "steps");
  if (!pair) return withNewField(text, workflow, "steps", `\n${listed("  ", name)}`, WORKFLOW_ORDER);
  const parts = partsOf(text, all);
  const last = parts.at(-1);
  if (!all.node || !last) return withFirstStep(text, pair, all.kind, name);
  if (isFlow(all.node)) {
    const item = all.kind === "list" ? `{name: ${name}, run: ""}` : `${name}: {run: ""}`;
    return spliced(text, last.to, last.to, `, ${item}`);
  }
  const first = all.steps[0]?.key;
  const head = first ? startOf(first.key) : dashOf(all.node as YAMLSeq, 0);
  const indent = " ".repeat(columnOf(text, head));
  const previous = parts.at(-2);
  const gap = previous && text.slice(previous.to, last.from).includes("\n") ? "\n" : "";
  return withLines(text, last.to, gap + (all.kind === "list" ? listed(indent, name) : keyed(indent, name)));
}

function withFirstStep(text: string, pair: Pair<Node, Node | null>, kind: StepsKind, name: string): string {
  const indent = " ".repeat(columnOf(text, startOf(pair.key)) + 2);
  const step = kind === "mapping" ? keyed(indent, name) : listed(indent, name);
  const colon = colonOf(text, pair);
  const end = Math.max(endOf(pair.value), colon);
  const comment = /^[^\n]*/.exec(text.slice(end))?.[0] ?? "";
  const rest = text.slice(end + comment.length).replace(/^\n/, "");
  return `${text.slice(0, colon)}${comment.trimEnd()}\n${step}${rest}`;
}

function listed(indent: string, name: string): string {
  return `${indent}- name: ${name}\n${indent}  run: ""\n`;
}

function keyed(indent: string, name: string): string {
  return `${indent}${name}:\n${indent}  run: ""\n`;
}
