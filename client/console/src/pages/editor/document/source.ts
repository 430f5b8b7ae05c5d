import {
  type Document,
  isMap,
  isPair,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseAllDocuments,
  type YAMLMap,
} from "yaml";

/** A definition as it is written: every edit is a change of its text, at places that its syntax tree names. */
export interface Source {
  text: string;
  /** The mapping of the workflow: the first document that has steps, else the first mapping. */
  workflow: YAMLMap | undefined;
  /** The first error of the syntax. With one the form cannot be used. */
  error: { message: string; offset: number } | undefined;
}

export function parseSource(text: string): Source {
  const parsed = parseAllDocuments(text, { keepSourceTokens: true, prettyErrors: false });
  const documents = (Array.isArray(parsed) ? parsed : []) as Document.Parsed[];
  const wrong = documents.flatMap((each) => each.errors)[0];
  const maps = documents.map((each) => each.contents as unknown).filter(isMap) as YAMLMap[];
  const workflow = maps.find((each) => each.has("steps")) ?? maps[0];
  return { text, workflow, error: wrong && { message: wrong.message, offset: wrong.pos[0] } };
}

export function pairOf(map: YAMLMap, key: string): Pair<Node, Node | null> | undefined {
  return map.items.find((each) => keyText(each) === key) as Pair<Node, Node | null> | undefined;
}

export function keyText(pair: unknown): string {
  if (!isPair(pair)) return "";
  return isScalar(pair.key) ? String(pair.key.value) : "";
}

export function valueOf(map: YAMLMap, key: string): Node | undefined {
  return pairOf(map, key)?.value ?? undefined;
}

/** Text of a scalar as people write it; undefined if there is none, or it is no scalar. */
export function scalarText(node: Node | null | undefined): string | undefined {
  if (!isScalar(node) || node.value === null || node.value === undefined) return undefined;
  return typeof node.value === "string" ? node.value : (node.source ?? String(node.value));
}

export function isFlow(node: Node): boolean {
  return (isMap(node) || isSeq(node)) && node.flow === true;
}

/** Where a node begins, and where its value ends. */
export function startOf(node: Node | null | undefined): number {
  return node?.range?.[0] ?? 0;
}

export function endOf(node: Node | null | undefined): number {
  return node?.range?.[1] ?? 0;
}

export function lineStart(text: string, offset: number): number {
  return text.lastIndexOf("\n", offset - 1) + 1;
}

/** The offset behind the end of the line; that of the offset itself if a line begins there. */
export function nextLine(text: string, offset: number): number {
  if (offset > 0 && text[offset - 1] === "\n") return offset;
  const end = text.indexOf("\n", offset);
  return end < 0 ? text.length : end + 1;
}

export function columnOf(text: string, offset: number): number {
  return offset - lineStart(text, offset);
}

/** Says on which line, from 1, an offset is. */
export function lineCounter(text: string): (offset: number) => number {
  const breaks: number[] = [];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) breaks.push(at);
  return (offset) => {
    let low = 0;
    let high = breaks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((breaks[middle] ?? 0) < offset) low = middle + 1;
      else high = middle;
    }
    return low + 1;
  };
}

export function spliced(text: string, from: number, to: number, insert: string): string {
  return text.slice(0, from) + insert + text.slice(to);
}

/** Puts whole lines at the start of a line, or at the end of a text that has no line break there. */
export function withLines(text: string, at: number, lines: string): string {
  const unfinished = at === text.length && text.length > 0 && !text.endsWith("\n");
  return unfinished ? `${text}\n${lines.replace(/\n$/, "")}` : spliced(text, at, at, lines);
}
