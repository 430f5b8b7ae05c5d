"""Readers of definitions: files of them, expressions, parameters, conditions of events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.mutation import mutated_json, words_of
from fuzz.target import Check, Target, expect_type
from toban.definition import (
    CostlyError,
    EventView,
    ParamError,
    RenderError,
    Scope,
    Workflow,
    bind_params,
    evaluate_items,
    evaluate_when,
    parse,
    render,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
AT_ONCE = 0.5
"""Seconds of processor time for what is evaluated in the event loop."""
_STEPS: dict[str, dict[str, Any]] = {
    "one": {
        "stdout": "out",
        "stderr": "",
        "exit_code": 0,
        "status": "SUCCEEDED",
        "outputs": {"k": "v"},
        "result": {"changed": False, "list": [1, 2, "x"]},
    }
}


@contextlib.contextmanager
def _definitions(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """A file is understood, or every problem has its line; the same text gives the same answer as text."""
        parsed = parse(data)
        for problem in parsed.problems:
            expect_type(problem.message, str, "message")
            assert problem.line >= 0 <= problem.column, problem
        for document in parsed.documents:
            if document.workflow is not None:
                json.dumps(document.workflow.to_dict()).encode()
                assert Workflow.from_dict(document.workflow.to_dict()) == document.workflow
        if data.isascii():
            assert parse(data.decode()) == parsed
        return parsed.problems[0].message if parsed.problems else "ok"

    yield check


HEAD = """\
name: a
description: d
params:
  flag: {type: boolean, default: true}
  n: {type: integer, default: 3}
  f: {type: number, default: 2.5}
  s: {default: text}
  xs: {type: list, default: [1, a, null]}
env: {HOST: "{{ params.s }}"}
steps:
  one: {run: x}
  last:
    run: x
    depends_on: [one]
"""


@contextlib.contextmanager
def _expressions(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """An expression is refused when it is stored, fails when it is evaluated, or has its value."""
        text = json.dumps(data.decode(errors="replace"))
        outcomes = [_evaluated(f"{HEAD}    {field}: {text}\n") for field in ("when", "for_each", "description")]
        template = json.dumps("{{ " + data.decode(errors="replace") + " }}")
        outcomes.append(_evaluated(f"{HEAD}    env: {{X: {template}}}\n"))
        return "; ".join(outcomes)

    yield check


def _evaluated(source: str) -> str:
    parsed = parse(source)
    if parsed.errors:
        return parsed.errors[0].message
    workflow = parsed.documents[0].workflow
    assert workflow is not None
    step = workflow.steps["last"]
    scope = Scope(params=bind_params(workflow, {}), run={"id": "r"}, env={}, steps=_STEPS)
    began = time.process_time()
    try:
        evaluate_when(workflow, step, scope, cheap_only=True)
        if step.for_each is not None:
            items = evaluate_items(workflow, step, scope, cheap_only=True)
            expect_type(items, list[Any], "items")
        expect_type(render(workflow, step, scope, cheap_only=True).env, dict[str, str], "env")
    except RenderError as error:
        expect_type(str(error), str, "error")
        return str(error)
    except CostlyError:
        return "costly"
    finally:
        spent = time.process_time() - began
        assert spent < AT_ONCE, f"it takes {spent:.2f} s, and is not known to be costly"
    return "ok"


@contextlib.contextmanager
def _params(work: Path) -> Iterator[Check]:
    workflow = parse(HEAD).documents[0].workflow
    assert workflow is not None

    def check(data: bytes) -> str:
        """Parameters are bound to what they declare, or all that is wrong with them is said."""
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            given = {name: data.decode(errors="replace") for name in ("n", "f", "s", "xs", "flag")}
        if not isinstance(given, dict):
            given = {"xs": given}
        try:
            bound = bind_params(workflow, given)
        except ParamError as error:
            return str(error)
        expect_type(bound["n"], int, "n")
        expect_type(bound["f"], float, "f")
        expect_type(bound["flag"], bool, "flag")
        return "ok"

    yield check


@contextlib.contextmanager
def _conditions(work: Path) -> Iterator[Check]:
    event = {
        "id": "e",
        "type": "data.changed",
        "payload": {"n": 1, "s": "x" * 100, "xs": [1, "a", None]},
        "source": "",
        "source_run": "",
        "source_step": "",
        "depth": 0,
        "at": "2026-11-18T00:00:00Z",
    }

    def check(data: bytes) -> str:
        """A condition that could be stored is true of an event, false, or fails with its reason."""
        condition = data.decode(errors="replace")
        source = "name: a\ndescription: d\nsteps: [{name: s, run: x}]\n"
        source += f"on: [{{event: data.changed, condition: {json.dumps(condition)}}}]\n"
        parsed = parse(source)
        if parsed.errors:
            return parsed.errors[0].message
        try:
            return str(EventView(event, cheap_only=True).matches(condition))
        except RenderError as error:
            return str(error)
        except CostlyError:
            return "costly"

    yield check


_CEL = (
    "==",
    "!=",
    "&&",
    "||",
    "!",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "in",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "//",
    "true",
    "null",
    "1",
    "0",
    "9223372036854775807",
    "1u",
    "1.5",
    "1e308",
    '"x"',
    "'a'",
    "b'x'",
    "r'\\d'",
    "params.s",
    "params.xs",
    "params.n",
    "steps.one.result",
    "event.payload",
    "item",
    "size(",
    ".size()",
    ".map(x, x + x)",
    ".map(x, [x, x])",
    ".filter(x, true)",
    ".exists(x, x == 1)",
    ".all(x, true)",
    ".matches('(a*)*b')",
    ".matches('(.|.)*{1000}')",
    ".contains(",
    ".startsWith(",
    "string(",
    "int(",
    "double(",
    "timestamp(",
    "duration(",
    "has(",
    "dyn(",
    "type(",
    "[0,1,2,3,4,5,6,7,8,9]",
)
_YAML = (
    ":",
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "&a ",
    "*a",
    "<<: *a",
    "<<: [*a, *a]",
    "|",
    ">",
    "---",
    "...",
    "!!python/object",
    "!!binary",
    "%YAML 1.1",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "#",
    "? ",
    "~",
    "0x10",
    "1_000",
    ".inf",
    ".nan",
    "2026-11-18",
    "name",
    "steps",
    "run",
    "depends_on",
    "for_each",
    "when",
    "params",
    "default",
    "retry",
    "loop",
    "timeout",
    "schedule",
    "cron",
    "matrix",
    "on",
    "event",
    "inputs",
    "outputs",
    "jobs",
    "kind",
    "env",
    "workspace",
    "overlap",
    "{{",
    "}}",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\t",
    "\x85",
    "\u2028",
)

TARGETS = (
    Target(
        name="definitions",
        reads="definition files and definitions of requests, YAML and JSON",
        samples=tuple(path.read_bytes() for path in sorted(EXAMPLES.glob("*.yaml"))),
        mutate=words_of(*_YAML),
        opened=_definitions,
    ),
    Target(
        name="expressions",
        reads="expressions in `when`, `for_each` and templates",
        samples=(
            b"params.flag && params.s == 'text'",
            b"params.xs.map(x, string(x))",
            b"steps.one.result.list.filter(x, x != 2)",
            b"steps.one.stdout.matches('^o.t$') ? 1 : 2",
            b"[1, 2, 3].map(x, [x, x * 2]) + [[4, 5]]",
            b"size(params.s) > 3 || params.n in [1, 2, 3]",
            b"{'a': params.n, 'b': [params.f]}",
        ),
        mutate=words_of(*_CEL),
        opened=_expressions,
    ),
    Target(
        name="event-conditions",
        reads="conditions of events",
        samples=(
            b"event.payload.n == 1",
            b"event.payload.s.matches('x+')",
            b"event.payload.xs.exists(x, x == 'a')",
        ),
        mutate=words_of(*_CEL),
        opened=_conditions,
    ),
    Target(
        name="params",
        reads="parameters of a run, typed and as text",
        samples=(
            b'{"n": 3, "f": 2.5, "s": "x", "xs": [1, {"a": "b"}], "flag": false}',
            b'{"n": "3", "f": "2.5", "xs": "[1]", "flag": "true"}',
        ),
        mutate=mutated_json,
        opened=_params,
    ),
)
