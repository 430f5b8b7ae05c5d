import { parse } from "yaml";
import { describe, expect, it } from "vitest";
import { dependenciesOf, freeStepName, readForm, withWorkflowField } from "./form";
import {
  withDependsOn,
  withNewStep,
  withoutStep,
  withStepField,
  withStepKind,
  withStepList,
  withStepMoved,
  withStepName,
} from "./steps";

const NIGHTLY = `# 夜間バッチ: ask the data team before changing
name: nightly   # the id
description: 'Fetch, build and publish'
schedule: "0 3 * * *" # at night
labels: {team: data}   # owner

steps:
  # gets the data
  - name: fetch
    run: |  # a script
      curl -fsS -o raw.json "$URL"

      wc -l raw.json
    timeout: 5m   # usually 20 s
    env: { B: "2", A: '1' }

  # makes the report
  - job_type: python
    name: build   # step two
    target: "reports.build:main"
    # runs after both
    depends_on: [fetch]   # list
    kwargs: {day: "{{ params.day }}"}
    # the last comment of build

  - {name: publish, run: ./upload.sh, depends_on: [fetch, build]}
# the end
`;

const GRAPH = `name: graph
steps:
  a:
    run: echo a   # first
  # about b
  b:
    run: echo b
    depends_on:
      - a   # needs a
  c: {run: echo c, depends_on: [a, b]}
`;

const comments = (text: string) => (text.match(/#[^\n]*/g) ?? []).sort();
const keepsComments = (before: string, after: string) => expect(comments(after)).toEqual(comments(before));

describe("fields of the workflow", () => {
  it("changes a value in its own quotes, beside its comment", () => {
    const text = withWorkflowField(NIGHTLY, "schedule", "*/5 * * * *");
    expect(text).toBe(NIGHTLY.replace('"0 3 * * *"', '"*/5 * * * *"'));
    expect(withWorkflowField(NIGHTLY, "description", "it's new")).toContain("description: 'it''s new'\n");
    expect(withWorkflowField(NIGHTLY, "name", "other")).toBe(NIGHTLY.replace("name: nightly ", "name: other "));
  });

  it("puts a new field where people expect it", () => {
    const text = withWorkflowField(NIGHTLY, "timezone", "Asia/Tokyo");
    expect(text).toContain("labels: {team: data}   # owner\ntimezone: Asia/Tokyo\n\nsteps:");
    expect(withWorkflowField("steps: []\n", "name", "x")).toBe("name: x\nsteps: []\n");
  });

  it("removes a field, and adds it again", () => {
    const without = withWorkflowField(NIGHTLY, "schedule", "");
    expect(without).toBe(NIGHTLY.replace('schedule: "0 3 * * *" # at night\n', ""));
    expect(parse(withWorkflowField(without, "schedule", "0 3 * * *"))).toEqual(parse(NIGHTLY));
  });

  it("quotes only what YAML would read differently", () => {
    for (const value of [
      "yes",
      "on",
      "1.5",
      "null",
      "~",
      "a: b",
      "# no",
      "- x",
      "{{ x }}",
      "日本語",
      "true",
      "'",
      '"',
      " x",
      "x:",
      "*a",
      "a\tb",
    ]) {
      const text = withWorkflowField("name: x\nsteps: []\n", "description", value);
      expect(parse(text).description).toBe(value);
    }
    expect(withWorkflowField("name: x\n", "description", "日本語の説明")).toContain("description: 日本語の説明\n");
  });

  it("writes several lines as a block, and one line again", () => {
    const block = withWorkflowField(
      "name: x # n\ndescription: old # d\nsteps: []\n",
      "description",
      "one\n  two\n\nthree",
    );
    expect(parse(block).description).toBe("one\n  two\n\nthree");
    keepsComments("# n\n# d\n", block);
    const line = withWorkflowField(block, "description", "short");
    expect(line).toBe("name: x # n\ndescription: short # d\nsteps: []\n");
  });

  it("fills in a value that is missing", () => {
    expect(withWorkflowField("name:\nsteps: []\n", "name", "x")).toBe("name: x\nsteps: []\n");
    expect(withWorkflowField("name: # which?\nsteps: []\n", "name", "x")).toBe("name: x # which?\nsteps: []\n");
    expect(withWorkflowField("", "name", "x")).toBe('name: "x"\n');
  });

  it("edits the workflow of a file with jobs", () => {
    const text = "jobs:\n  a: {run: x}\n---\nname: w\nsteps: [{name: s, run: x}]\n";
    expect(withWorkflowField(text, "name", "v")).toBe(text.replace("name: w", "name: v"));
  });
});

describe("fields of a step", () => {
  it("changes a script without touching its neighbours", () => {
    const text = withStepField(NIGHTLY, 0, "run", "echo one\necho two");
    expect(parse(text).steps[0].run).toBe("echo one\necho two");
    keepsComments(NIGHTLY, text);
    const line = withStepField(NIGHTLY, 0, "run", "echo short");
    expect(line).toContain("    run: echo short # a script\n    timeout: 5m   # usually 20 s\n");
  });

  it("sets, changes and removes a timeout", () => {
    expect(withStepField(NIGHTLY, 0, "timeout", "90", "word")).toContain("timeout: 90   # usually 20 s\n");
    const set = withStepField(NIGHTLY, 1, "timeout", "1h", "word");
    expect(set).toContain('kwargs: {day: "{{ params.day }}"}\n    timeout: 1h\n    # the last');
    expect(withStepField(set, 1, "timeout", "")).toBe(NIGHTLY);
    expect(withStepField(NIGHTLY, 2, "timeout", "3s")).toContain(
      "{name: publish, run: ./upload.sh, depends_on: [fetch, build], timeout: 3s}",
    );
  });

  it("edits arguments one by one", () => {
    const block =
      "name: x\nsteps:\n  - name: a\n    target: echo # t\n    args:\n      - 'one' # 1\n      - two # 2\n      - 3 # 3\n";
    const more = withStepList(block, 0, "args", ["one", "two", "3", "four"]);
    expect(more).toBe(`${block}      - four\n`);
    expect(withStepList(block, 0, "args", ["one", "zwei", "3"])).toBe(block.replace("two", "zwei"));
    expect(withStepList(block, 0, "args", ["one", "3"])).toBe(block.replace("      - two # 2\n", ""));
    const none = withStepList(block, 0, "args", []);
    expect(parse(none).steps[0]).toEqual({ name: "a", target: "echo" });
    expect(withStepList(none, 0, "args", ["a, b"])).toContain('args: ["a, b"]\n');
  });

  it("changes what a step waits for", () => {
    expect(withDependsOn(NIGHTLY, 2, ["build"])).toContain("depends_on: [build]}");
    expect(withDependsOn(NIGHTLY, 1, [])).toContain("depends_on: []   # list");
    expect(parse(withDependsOn(NIGHTLY, 1, undefined)).steps[1].depends_on).toBeUndefined();
    expect(parse(withDependsOn(GRAPH, 1, [])).steps.b).toEqual({ run: "echo b" });
    expect(withDependsOn(GRAPH, 2, ["a", "b", "x"])).toContain("depends_on: [a, b, x]}");
  });

  it("makes it a step of another kind", () => {
    const python = withStepKind(NIGHTLY, 2, "python");
    expect(parse(python).steps[2]).toEqual({
      name: "publish",
      job_type: "python",
      target: "./upload.sh",
      depends_on: ["fetch", "build"],
    });
    expect(parse(withStepKind(python, 2, "shell"))).toEqual(parse(NIGHTLY));
    expect(parse(withStepKind(NIGHTLY, 1, "approval")).steps[1].target).toBeUndefined();
    expect(parse(withStepKind(NIGHTLY, 2, "job")).steps[2].job).toBe("");
  });

  it("renames a step everywhere", () => {
    const text = withStepName(NIGHTLY, 0, "get-data");
    expect(text).toBe(
      NIGHTLY.replace("name: fetch", "name: get-data")
        .replace("[fetch]", "[get-data]")
        .replace("[fetch, build]", "[get-data, build]"),
    );
    expect(parse(withStepName(GRAPH, 0, "start")).steps.c.depends_on).toEqual(["start", "b"]);
    expect(withStepName(GRAPH, 0, "b")).toBe(GRAPH);
  });
});

describe("the list of steps", () => {
  it("moves a step with its comments, and back", () => {
    const moved = withStepMoved(NIGHTLY, 0, 1);
    expect(parse(moved).steps.map((each: { name: string }) => each.name)).toEqual(["build", "fetch", "publish"]);
    keepsComments(NIGHTLY, moved);
    expect(moved).toContain("  # gets the data\n  - name: fetch");
    expect(moved).toContain("    # the last comment of build\n\n  # gets the data\n");
    expect(withStepMoved(moved, 1, -1)).toBe(NIGHTLY);
    expect(withStepMoved(withStepMoved(NIGHTLY, 1, 1), 1, 1)).toBe(NIGHTLY);
    expect(withStepMoved(NIGHTLY, 2, 1)).toBe(NIGHTLY);
    expect(withStepMoved(NIGHTLY, 0, -1)).toBe(NIGHTLY);
  });

  it("moves steps of a mapping, of one line, and at an end without a line break", () => {
    const moved = withStepMoved(GRAPH, 0, 1);
    expect(Object.keys(parse(moved).steps)).toEqual(["b", "a", "c"]);
    keepsComments(GRAPH, moved);
    const flow = "name: x\nsteps: [{name: a, run: x}, {name: b, run: y}]";
    expect(withStepMoved(flow, 0, 1)).toBe("name: x\nsteps: [{name: b, run: y}, {name: a, run: x}]");
    const open = "name: x\nsteps:\n- name: a\n  run: x\n- name: b\n  run: y";
    expect(withStepMoved(open, 0, 1)).toBe("name: x\nsteps:\n- name: b\n  run: y\n- name: a\n  run: x");
  });

  it("adds a step in the form of the others", () => {
    expect(withNewStep(NIGHTLY, "step-4")).toContain(
      'depends_on: [fetch, build]}\n\n  - name: step-4\n    run: ""\n# the end\n',
    );
    expect(parse(withNewStep(GRAPH, "d")).steps.d).toEqual({ run: "" });
    expect(withNewStep("name: x\nsteps: [{name: a, run: x}]\n", "b")).toBe(
      'name: x\nsteps: [{name: a, run: x}, {name: b, run: ""}]\n',
    );
    for (const empty of [
      "name: x\n",
      "name: x\nsteps:\n",
      "name: x\nsteps: []\n",
      "name: x\nsteps: [] # none\nfinally: []\n",
      "name: x",
      "",
    ]) {
      const text = withNewStep(empty, "a");
      expect(parse(text).steps).toEqual([{ name: "a", run: "" }]);
      keepsComments(empty, text);
    }
  });

  it("removes a step, and what others say about it", () => {
    const text = withoutStep(NIGHTLY, 0);
    expect(parse(text).steps.map((each: { name: string }) => each.name)).toEqual(["build", "publish"]);
    expect(text).toContain("depends_on: []   # list");
    expect(text).toContain("depends_on: [build]}");
    expect(text).toContain("steps:\n  # makes the report\n");
    expect(text).not.toContain("gets the data");
    expect(parse(withoutStep(GRAPH, 1)).steps).toEqual({
      a: { run: "echo a" },
      c: { run: "echo c", depends_on: ["a"] },
    });
    expect(withoutStep(NIGHTLY, 2)).toBe(NIGHTLY.replace(/\n {2}- \{name: publish.*\n/, ""));
    expect(parse(withoutStep("name: x\nsteps:\n  - name: a # c\n    run: x\n", 0))).toEqual({ name: "x", steps: [] });
  });

  it("keeps every value and comment through many edits", () => {
    let text = NIGHTLY;
    for (let round = 0; round < 3; round += 1) {
      for (let at = 0; at < 3; at += 1) {
        text = withStepMoved(text, at, round % 2 === 0 ? 1 : -1);
        text = withStepField(text, at, "timeout", `${round + at + 1}m`, "word");
        text = withStepField(text, at, "on_failure", "continue");
        text = withStepField(text, at, "on_failure", "");
      }
    }
    const steps = parse(text).steps as { name: string; timeout: string }[];
    const original = parse(NIGHTLY).steps as { name: string }[];
    for (const step of original) {
      const found = steps.find((each) => each.name === step.name);
      expect({ ...found, timeout: 0 }).toEqual({ ...step, timeout: 0 });
    }
    keepsComments(NIGHTLY, text);
  });
});

describe("what the form shows", () => {
  it("reads steps with their lines", () => {
    const form = readForm(NIGHTLY);
    expect(form.schedule).toBe("0 3 * * *");
    expect(form.steps.map((each) => [each.id, each.kind, each.target.split("\n")[0]])).toEqual([
      ["fetch", "shell", 'curl -fsS -o raw.json "$URL"'],
      ["build", "python", "reports.build:main"],
      ["publish", "shell", "./upload.sh"],
    ]);
    expect(form.steps[1]?.lines).toEqual([18, 23]);
    expect(freeStepName(form)).toBe("step-4");
  });

  it("says what each step waits for", () => {
    expect(
      dependenciesOf(readForm("name: x\nsteps: [{name: a, run: x}, {name: 集計, run: x}, {name: c, run: x}]\n")),
    ).toEqual([[], ["a"], ["#2"]]);
    expect(dependenciesOf(readForm(GRAPH))).toEqual([[], ["a"], ["a", "b"]]);
  });

  it("says where the syntax is wrong, and never fails", () => {
    expect(readForm("name: [\nsteps: x\n").error?.line).toBeGreaterThan(0);
    for (const text of [
      "",
      "a",
      "- 1",
      "name: x\nsteps: x",
      "name: x\nsteps: [1, a, *b]",
      "steps: {a: , b: 1}",
      "\0",
      "? [a]\n: b",
    ]) {
      expect(readForm(text).steps.length).toBeGreaterThanOrEqual(0);
    }
    expect(readForm("x: &a {run: y}\nname: n\nsteps: {a: *a}\n").steps[0]?.editable).toBe(false);
  });
});
