import { describe, expect, it } from "vitest";
import { firstText, paramValues, ParamTextError } from "./params";
import type { Param } from "./parsedDefinition";

const DAY: Param = { name: "day", type: "string", default: "today", has_default: true };
const ROWS: Param = { name: "rows", type: "integer", required: true };
const DEEP: Param = { name: "deep", type: "boolean", default: false, has_default: true };
const EXTRA: Param = { name: "extra", type: "mapping", default: { a: 1 }, has_default: true };
const TOKEN: Param = { name: "token", type: "string", secret: true };
const ALL = [DAY, ROWS, DEEP, EXTRA, TOKEN];

describe("the parameters of a run", () => {
  it("begins with the defaults, and never with a secret", () => {
    expect(ALL.map(firstText)).toEqual(["today", "", "false", '{"a":1}', ""]);
    expect(firstText({ ...TOKEN, default: "x", has_default: true })).toBe("");
  });

  it("sends what differs from the defaults, with its type", () => {
    expect(paramValues(ALL, {})).toEqual({});
    expect(paramValues(ALL, { rows: "20", day: "", deep: "true", extra: "{}", token: "s" })).toEqual({
      rows: 20,
      day: "",
      deep: true,
      extra: {},
      token: "s",
    });
  });

  it("leaves a wrong number to the daemon, and refuses what is no JSON", () => {
    expect(paramValues(ALL, { rows: "many" })).toEqual({ rows: "many" });
    expect(() => paramValues(ALL, { extra: "{" })).toThrow(ParamTextError);
  });
});
