import type { PlaceInYaml } from "./schemaPath";

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  type?: string | string[];
  description?: string;
  deprecated?: boolean;
}

export interface SchemaWord {
  text: string;
  about: string;
  /** Whether it is a key, which a colon follows. */
  isKey: boolean;
}

/** What a JSON Schema allows at a place: the keys of the mapping, or the values of a key. */
export function wordsAt(root: Schema, place: PlaceInYaml): SchemaWord[] {
  const maps = place.path.reduce<Schema[]>(
    (at, part) => at.flatMap((each) => below(each, part)).flatMap(open),
    open(root),
  );
  if (place.key !== undefined) {
    const key = place.key;
    const found = maps
      .flatMap((each) => below(each, key))
      .flatMap(open)
      .flatMap(valuesOf);
    return [...new Set(found)].map((text) => ({ text, about: "", isKey: false }));
  }
  const keys = new Map<string, SchemaWord>();
  for (const each of maps) {
    for (const [text, schema] of Object.entries(each.properties ?? {})) {
      if (schema.deprecated || place.taken.has(text) || keys.has(text)) continue;
      keys.set(text, { text, about: open(schema).find((one) => one.description)?.description ?? "", isKey: true });
    }
  }
  return [...keys.values()];

  /** The schema and its choices, without references. */
  function open(schema: Schema): Schema[] {
    const found = schema.$ref ? root.$defs?.[schema.$ref.replace("#/$defs/", "")] : undefined;
    const described = found && schema.description ? [{ description: schema.description }] : [];
    const inner = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
    return [...described, schema, ...(found ? open(found) : []), ...inner.flatMap(open)];
  }
}

function below(schema: Schema, part: string): Schema[] {
  if (part === "[]") return schema.items ? [schema.items] : [];
  const own = schema.properties?.[part];
  if (own) return [own];
  const other = schema.additionalProperties;
  return typeof other === "object" ? [other] : [];
}

function valuesOf(schema: Schema): string[] {
  if (schema.type === "boolean") return ["true", "false"];
  const found = schema.enum ?? (schema.const === undefined ? [] : [schema.const]);
  return found.filter((each) => each !== null).map(String);
}
