import { parseSource } from "./source";
import { stepsOf, targetKey, withStepField } from "./steps";

/** Sets what a step runs, under the name that its kind has for it. An empty one stays, so that it is asked for. */
export function targetField(text: string, at: number, value: string): string {
  const map = stepsOf(parseSource(text).workflow).steps[at]?.map;
  return map ? withStepField(text, at, targetKey(map), value) : text;
}
