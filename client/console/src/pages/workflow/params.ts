import type { Param } from "./parsedDefinition";

/** What the fields of a form have: texts, and booleans of checkboxes. */
export type ParamTexts = Record<string, string>;

/** The text of the default, which the form begins with. A secret begins empty. */
export function firstText(param: Param): string {
  if (param.secret || !param.has_default || param.default === null || param.default === undefined) return "";
  return typeof param.default === "string" ? param.default : JSON.stringify(param.default);
}

/**
 * The values to send: those that differ from the defaults. The daemon converts texts to their types; lists and mappings
 * are JSON. Throws if one is no JSON.
 */
export function paramValues(params: readonly Param[], texts: ParamTexts): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const param of params) {
    const text = texts[param.name] ?? firstText(param);
    if (text === firstText(param) && !(param.required && text !== "")) continue;
    if (text === "" && param.type !== "string") continue;
    values[param.name] = valueOf(param, text);
  }
  return values;
}

function valueOf(param: Param, text: string): unknown {
  if (param.type === "boolean") return text === "true";
  if (param.type === "integer" || param.type === "number") return Number.isFinite(Number(text)) ? Number(text) : text;
  if (param.type === "string") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new ParamTextError(param.name);
  }
}

/** A list or a mapping that is not written as JSON. */
export class ParamTextError extends Error {
  readonly param: string;

  constructor(param: string) {
    super(param);
    this.param = param;
  }
}
