import { isSeq, isCollection, type Node, type Pair, type YAMLMap, type YAMLSeq } from "yaml";
import { type Place, replaced, scalar, type Written } from "./scalars";
import { columnOf, endOf, isFlow, keyText, lineStart, nextLine, pairOf, spliced, startOf, withLines } from "./source";

/** The order in which fields are usually written; a new one goes behind those that stand before it here. */
export const WORKFLOW_ORDER: readonly string[] =
  "id name title version description labels enabled is_enabled timezone schedule calendar blackout on triggers watch params env timeout defaults steps".split(
    " ",
  );
export const STEP_ORDER: readonly string[] =
  "id name title description job job_id job_type run target args kwargs depends_on timeout on_failure on_fail max_retries".split(
    " ",
  );

type MapPair = Pair<Node, Node | null>;

/** Sets a field to a text; an empty one removes the field. */
export function withField(
  text: string,
  map: YAMLMap,
  key: string,
  value: string,
  order: readonly string[],
  kind: Written = "text",
): string {
  const pair = pairOf(map, key);
  if (value === "") return pair ? withoutField(text, map, key) : text;
  const place: Place = { indent: indentOf(text, map), flow: isFlow(map) };
  if (!pair) return withNewField(text, map, key, scalar(value, place, undefined, kind), order);
  return withValue(text, pair, scalar(value, place, pair.value, kind));
}

/** Gives a field that exists another value, as YAML. */
export function withValue(text: string, pair: MapPair, written: string): string {
  const { value } = pair;
  if (value && endOf(value) > startOf(value)) {
    if (isCollection(value) && !value.flow) return withBlockReplaced(text, pair, value, written);
    return replaced(text, value, written);
  }
  const colon = colonOf(text, pair);
  const line = /^[^\S\n]*/.exec(text.slice(colon))?.[0].length ?? 0;
  return replacedEmpty(text, colon, colon + line, written);
}

function replacedEmpty(text: string, from: number, to: number, written: string): string {
  const rest = text.slice(to);
  const blank = rest.startsWith("#") ? " " : "";
  if (!written.endsWith("\n")) return `${text.slice(0, from)} ${written}${blank}${rest}`;
  return `${text.slice(0, from)} ${written}${rest.replace(/^\n/, "")}`;
}

/** A collection over several lines becomes a value beside its key. */
function withBlockReplaced(text: string, pair: MapPair, value: Node, written: string): string {
  const colon = colonOf(text, pair);
  const end = nextLine(text, endOf(value));
  return `${text.slice(0, colon)} ${written.replace(/\n$/, "")}\n${text.slice(end)}`;
}

export function colonOf(text: string, pair: MapPair): number {
  const token = pair.srcToken as { sep?: { type: string; offset: number }[] } | undefined;
  const colon = token?.sep?.find((each) => each.type === "map-value-ind")?.offset;
  return (colon ?? text.indexOf(":", endOf(pair.key))) + 1;
}

/** Adds a field with a value that is written as YAML already. */
export function withNewField(
  text: string,
  map: YAMLMap,
  key: string,
  written: string,
  order: readonly string[],
): string {
  const before = map.items.filter((each) => rank(keyText(each), order) <= rank(key, order));
  const last = before[before.length - 1] as MapPair | undefined;
  const field = `${key}:${written.startsWith("\n") ? "" : " "}${written}`;
  if (isFlow(map)) {
    if (map.items.length === 0) return spliced(text, startOf(map) + 1, startOf(map) + 1, field);
    const end = last ? pairEnd(last) : undefined;
    return end === undefined
      ? spliced(text, startOf(map), startOf(map) + 1, `{${field}, `)
      : spliced(text, end, end, `, ${field}`);
  }
  const indent = " ".repeat(indentOf(text, map));
  if (!last) {
    const line = field.endsWith("\n") ? field : `${field}\n`;
    return spliced(text, startOf(map), startOf(map), line + indent);
  }
  const at = blockEnd(text, last, indent.length);
  return withLines(text, at, `${indent}${field}${field.endsWith("\n") ? "" : "\n"}`);
}

function rank(key: string, order: readonly string[]): number {
  const at = order.indexOf(key);
  if (at >= 0) return at;
  // A field that is not named in the order stands before the steps, or at the end of a step.
  const steps = order.indexOf("steps");
  return steps < 0 ? order.length : steps - 0.5;
}

/** Removes a field and the comment beside it; those above it stay. */
export function withoutField(text: string, map: YAMLMap, key: string): string {
  const at = map.items.findIndex((each) => keyText(each) === key);
  const pair = map.items[at] as MapPair | undefined;
  if (!pair) return text;
  const next = map.items[at + 1] as MapPair | undefined;
  if (isFlow(map)) {
    const previous = map.items[at - 1] as MapPair | undefined;
    if (next) return spliced(text, startOf(pair.key), startOf(next.key), "");
    return spliced(text, previous ? pairEnd(previous) : startOf(pair.key), pairEnd(pair), "");
  }
  if (map.items.length === 1) return spliced(text, startOf(pair.key), nextLine(text, pairEnd(pair)), "{}\n");
  const begin = lineStart(text, startOf(pair.key));
  const beside = text.slice(begin, startOf(pair.key)).trim() !== "";
  // The first field of an item stands beside its dash, where the next one moves up.
  if (beside && next) return spliced(text, startOf(pair.key), startOf(next.key), "");
  return spliced(text, begin, blockEnd(text, pair, indentOf(text, map)), "");
}

export function pairEnd(pair: MapPair): number {
  return Math.max(endOf(pair.key), endOf(pair.value));
}

/** The offset behind the last line of a field or an item, with comments further in than it. */
export function blockEnd(text: string, pair: MapPair, indent: number): number {
  return withDeeperComments(text, nextLine(text, Math.max(pairEnd(pair), colonOf(text, pair))), indent);
}

export function withDeeperComments(text: string, from: number, indent: number): number {
  let end = from;
  for (;;) {
    const line = /^( *)#[^\n]*(\n|$)/.exec(text.slice(end));
    if (!line || !line[0] || (line[1]?.length ?? 0) <= indent) return end;
    end += line[0].length;
  }
}

/** The column of the keys of a mapping. */
export function indentOf(text: string, map: YAMLMap): number {
  const first = map.items[0] as MapPair | undefined;
  return first && !isFlow(map) ? columnOf(text, startOf(first.key)) : columnOf(text, startOf(map));
}

/** Sets a list of texts. Items that stay are not touched: their comments and quotes survive. */
export function withList(
  text: string,
  map: YAMLMap,
  key: string,
  values: readonly string[],
  order: readonly string[],
): string {
  const pair = pairOf(map, key);
  const fresh = `[${values.map((each) => scalar(each, { indent: 0, flow: true })).join(", ")}]`;
  if (!pair) return withNewField(text, map, key, fresh, order);
  const list = pair.value;
  if (!isSeq(list) || list.items.length === 0 || values.length === 0) return withValue(text, pair, fresh);
  return withItems(text, list as ItemList, values);
}

type ItemList = YAMLSeq<Node>;

export function itemText(node: unknown): string {
  const scalarNode = node as { value?: unknown; toJSON?: () => unknown };
  if (typeof scalarNode?.value === "string") return scalarNode.value;
  const plain = scalarNode?.toJSON?.() ?? scalarNode?.value;
  return typeof plain === "string" ? plain : JSON.stringify(plain ?? null);
}

function withItems(text: string, list: ItemList, values: readonly string[]): string {
  const old = list.items.map(itemText);
  let same = 0;
  while (same < old.length && same < values.length && old[same] === values[same]) same += 1;
  let tail = 0;
  while (tail < old.length - same && tail < values.length - same && old.at(-1 - tail) === values.at(-1 - tail))
    tail += 1;
  const gone = list.items.slice(same, old.length - tail);
  const come = values.slice(same, values.length - tail);
  let changed = text;
  // From the end, so that the places before stay right.
  const both = Math.min(gone.length, come.length);
  if (come.length > both) changed = withInserted(changed, list, same + both, come.slice(both));
  for (let at = gone.length - 1; at >= both; at -= 1) changed = withoutItem(changed, list, same + at);
  for (let at = both - 1; at >= 0; at -= 1) {
    const node = gone[at] as Node;
    const place = { indent: columnOf(text, startOf(node)), flow: isFlow(list) };
    changed = replaced(changed, node, scalar(come[at] ?? "", place, node));
  }
  return changed;
}

function withInserted(text: string, list: ItemList, at: number, values: readonly string[]): string {
  const flow = isFlow(list);
  const written = values.map((each) => scalar(each, { indent: 0, flow: true }));
  const before = list.items[at - 1];
  const after = list.items[at];
  if (flow) {
    if (before) return spliced(text, endOf(before), endOf(before), written.map((each) => `, ${each}`).join(""));
    return spliced(text, startOf(after), startOf(after), written.map((each) => `${each}, `).join(""));
  }
  const dash = dashOf(list, 0);
  const indent = " ".repeat(columnOf(text, dash));
  const lines = written.map((each) => `${indent}- ${each}\n`).join("");
  if (before) return withLines(text, nextLine(text, endOf(before)), lines);
  return spliced(text, lineStart(text, dash), lineStart(text, dash), lines);
}

function withoutItem(text: string, list: ItemList, at: number): string {
  const node = list.items[at] as Node;
  const next = list.items[at + 1];
  const previous = list.items[at - 1];
  if (isFlow(list)) {
    if (previous) return spliced(text, endOf(previous), endOf(node), "");
    return next ? spliced(text, startOf(node), startOf(next), "") : spliced(text, startOf(node), endOf(node), "");
  }
  return spliced(text, lineStart(text, dashOf(list, at)), nextLine(text, endOf(node)), "");
}

/** Where the dash of an item of a block list stands. */
export function dashOf(list: { srcToken?: unknown; items: unknown[] }, at: number): number {
  const token = list.srcToken as { items?: { start: { type: string; offset: number }[] }[] } | undefined;
  const items = token?.items?.filter((each) => each.start.some((part) => part.type === "seq-item-ind")) ?? [];
  return items[at]?.start.find((part) => part.type === "seq-item-ind")?.offset ?? 0;
}
