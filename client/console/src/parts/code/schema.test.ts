import { describe, expect, it } from "vitest";
import { placeAt } from "./schemaPath";
import { type Schema, wordsAt } from "./schemaWords";

const SCHEMA: Schema = {
  anyOf: [{ $ref: "#/$defs/Workflow" }],
  $defs: {
    Workflow: {
      properties: {
        name: { type: "string", description: "Its id" },
        enabled: { type: "boolean" },
        is_enabled: { type: "boolean", deprecated: true },
        steps: { anyOf: [{ items: { $ref: "#/$defs/Step" } }, { additionalProperties: { $ref: "#/$defs/Step" } }] },
      },
    },
    Step: {
      properties: {
        run: { type: "string" },
        timeout: {},
        on_failure: { enum: ["abort", "skip"] },
        retry: { properties: { backoff: {} } },
      },
    },
  },
};

/** The words at the `|` of a text. */
function words(text: string): string[] | undefined {
  const lines = text.split("\n");
  const at = lines.findIndex((each) => each.includes("|"));
  const column = lines[at]?.indexOf("|") ?? 0;
  lines[at] = (lines[at] ?? "").replace("|", "");
  const place = placeAt(lines, at, column);
  return place && wordsAt(SCHEMA, place).map((each) => each.text);
}

describe("completion", () => {
  it("offers the keys of the mapping that are not there yet", () => {
    expect(words("name: x\n|\n")).toEqual(["enabled", "steps"]);
    expect(words("steps:\n  - run: x\n    |\n")).toEqual(["timeout", "on_failure", "retry"]);
    expect(words("steps:\n- run: x\n- ti|\n  run: y\n")).toEqual(["timeout", "on_failure", "retry"]);
    expect(words("steps:\n  a:\n    run: x\n    |\n")).toEqual(["timeout", "on_failure", "retry"]);
    expect(words("steps:\n  a:\n    retry:\n      |\n    run: x\n")).toEqual(["backoff"]);
    expect(words("steps:\n  - run: x\n\n|\nname: x\n")).toEqual(["enabled"]);
  });

  it("offers the values of a key, and nothing where there are none", () => {
    expect(words("enabled: |\n")).toEqual(["true", "false"]);
    expect(words("steps:\n  - run: x\n    on_failure: a|\n")).toEqual(["abort", "skip"]);
    expect(words("name: x # |\n")).toBeUndefined();
    expect(words("name: a b|\n")).toBeUndefined();
  });
});
