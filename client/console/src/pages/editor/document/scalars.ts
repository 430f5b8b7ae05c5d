import { isScalar, type Node, parse } from "yaml";
import { startOf } from "./source";

/** How a value is to be written. */
export interface Place {
  /** Of the mapping that has it. */
  indent: number;
  flow: boolean;
}

/** Text that may also be a number, such as a timeout of 30 (seconds). */
export type Written = "text" | "word";

/** Writes a text as a scalar: in the style of the node that it replaces, if that can hold it. */
export function scalar(value: string, place: Place, old?: Node | null, kind: Written = "text"): string {
  const style = isScalar(old) ? old.type : undefined;
  if (value.includes("\n") && !place.flow && holdsAsBlock(value)) return block(value, place, old);
  if (style === "QUOTE_SINGLE" && isPrintable(value)) return `'${value.replaceAll("'", "''")}'`;
  if (style === "QUOTE_DOUBLE") return JSON.stringify(value);
  return isPlain(value, place.flow, kind) ? value : JSON.stringify(value);
}

/** Whether YAML reads the text back as it is, without quotes. */
function isPlain(value: string, flow: boolean, kind: Written): boolean {
  if (value === "" || value !== value.trim() || !isPrintable(value)) return false;
  try {
    const read: unknown = flow ? parse(`[${value}]`) : parse(`- ${value}`);
    if (!Array.isArray(read) || read.length !== 1) return false;
    return read[0] === value || (kind === "word" && typeof read[0] === "number");
  } catch {
    return false;
  }
}

function isPrintable(value: string): boolean {
  return !/[\p{Cc}\u2028\u2029\ufeff]/u.test(value);
}

/** A literal block cannot begin with a blank, and has no control characters. */
function holdsAsBlock(value: string): boolean {
  return (
    !/^[\n ]/.test(value) && !/[\p{Cc}\u2028\u2029\ufeff]/u.test(value.replaceAll(/[\n\t]/g, "")) && value.trim() !== ""
  );
}

function block(value: string, place: Place, old?: Node | null): string {
  const before = isScalar(old) ? headOf(old) : { comment: "", indent: 0 };
  const indent = " ".repeat(before.indent || place.indent + 2);
  const chomp = !value.endsWith("\n") ? "-" : value.endsWith("\n\n") ? "+" : "";
  const lines = value.replace(/\n$/, "").split("\n");
  const body = lines.map((each) => (each === "" ? "" : indent + each)).join("\n");
  return `|${chomp}${before.comment}\n${body}\n`;
}

interface Head {
  comment: string;
  indent: number;
}

/** What is kept of a block that is written again: the comment beside its sign, and its indentation. */
function headOf(node: Node): Head {
  const token = node.srcToken as
    { type?: string; props?: { type: string; source: string }[]; source?: string } | undefined;
  if (token?.type !== "block-scalar") return { comment: "", indent: 0 };
  const comment = token.props?.find((each) => each.type === "comment")?.source;
  const first = /^( +)\S/m.exec(token.source ?? "");
  return { comment: comment ? ` ${comment}` : "", indent: first?.[1]?.length ?? 0 };
}

/** Replaces the value in the text. A block ends with its line break, which others do not have. */
export function replaced(text: string, node: Node, written: string): string {
  const from = startOf(node);
  const to = node.range?.[1] ?? from;
  const hadBreak = text.slice(from, to).endsWith("\n");
  const hasBreak = written.endsWith("\n");
  const rest = text.slice(to);
  if (hasBreak && !hadBreak) {
    // A comment behind the old value goes behind the sign of the block.
    const line = /^[^\S\n]*(#[^\n]*)?(\n|$)/.exec(rest);
    const comment = line?.[1] && !written.startsWith("| #") ? written.replace("\n", ` ${line[1]}\n`) : written;
    return text.slice(0, from) + comment + rest.slice(line?.[0].length ?? 0);
  }
  if (!hasBreak && hadBreak) {
    const { comment } = headOf(node);
    return `${text.slice(0, from)}${written}${comment}\n${rest}`;
  }
  return text.slice(0, from) + written + rest;
}
