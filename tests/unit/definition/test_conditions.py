"""`when` and `for_each`: allowed values, and their effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toban.definition import (
    MAX_ITEMS,
    Problem,
    RenderError,
    Scope,
    Workflow,
    bind_params,
    condition_references,
    evaluate_items,
    evaluate_when,
    references,
)

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = """\
name: a
description: d
params:
  flag: {type: boolean, default: true}
  maybe: {type: boolean}
  s: {default: text}
  xs: {type: list, default: [1, a, null]}
env: {HOST: "{{ params.s }}"}
steps:
  one: {run: x}
  many: {run: x, for_each: params.xs, depends_on: [one]}
"""
STEPS: dict[str, dict[str, Any]] = {
    "one": {"stdout": "out", "exit_code": 0, "result": {"changed": False, "list": [1, 2]}},
    "many": {"stdout": ["a", "b"], "exit_code": [0, 1], "status": "FAILED", "outputs": [{}, {}]},
}


def last(read: Read, fields: str) -> Workflow:
    return read(f"{HEAD}  last:\n    run: x\n    depends_on: [many]\n    {fields}\n")


def scope(workflow: Workflow, **given: Any) -> Scope:
    return Scope(params=bind_params(workflow, given), run={"id": "r"}, env={}, steps=STEPS)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("true", True),
        ("false", False),
        ("'false'", False),
        ("params.flag", True),
        ("'!params.flag'", False),
        ("steps.one.exit_code == 0", True),
        ("steps.one.result.changed", False),
        ("steps.one.result.list.exists(x, x == 2)", True),
        ("env.HOST == 'text' && run.id == 'r'", True),
        ("steps.many.status == 'FAILED' && steps.many.exit_code.exists(c, c == 1)", True),
        ("steps.many.stdout[1] == 'b'", True),
        (">\n      params.flag &&\n      true", True),
    ],
)
def test_when(when: str, expected: bool, workflow: Read) -> None:
    found = last(workflow, f"when: {when}")
    assert evaluate_when(found, found.steps["last"], scope(found)) is expected


def test_a_step_without_a_condition_runs(workflow: Read) -> None:
    found = last(workflow, "")
    assert evaluate_when(found, found.steps["last"], scope(found)) is True


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("params.maybe", "params.maybe: expected true or false, found null"),
        ("steps.one.result.list", "expected true or false, found a list"),
        ("steps.one.result.nope", 'steps.one.result has no field "nope"'),
        ("steps.one.stderr == ''", "steps.one.stderr has no value in this run"),
        ("1/0 == 1", "1/0 == 1: divide by zero"),
    ],
)
def test_a_condition_without_a_value(when: str, message: str, workflow: Read) -> None:
    found = last(workflow, f"when: {when}")
    with pytest.raises(RenderError, match="cannot evaluate when of step last: ") as caught:
        evaluate_when(found, found.steps["last"], scope(found))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("for_each", "expected"),
    [
        ("params.xs", (1, "a", None)),
        ("steps.many.stdout", ("a", "b")),
        ("steps.one.result.list.map(x, x * 2)", (2, 4)),
        ("'[]'", ()),
        ("[]", ()),
        ("[1, '{{ params.xs }}', {a: '{{ params.s }}!'}]", (1, [1, "a", None], {"a": "text!"})),
        (
            "{os: [linux, mac], n: '[1, 2]'}",
            (
                {"os": "linux", "n": 1},
                {"os": "linux", "n": 2},
                {"os": "mac", "n": 1},
                {"os": "mac", "n": 2},
            ),
        ),
        ("{os: [linux], n: '[]'}", ()),
    ],
)
def test_items(for_each: str, expected: tuple[Any, ...], workflow: Read) -> None:
    found = last(workflow, f"for_each: {for_each}")
    assert evaluate_items(found, found.steps["last"], scope(found)) == expected


@pytest.mark.parametrize(
    ("for_each", "message"),
    [
        ("steps.one.result", "for_each of step last: steps.one.result: expected a list, found a"),
        ("steps.one.result.nope", 'has no field "nope"'),
        (
            "{a: steps.one.result.changed}",
            "for_each.a of step last: .*expected a list, found false",
        ),
        (
            "{a: params.xs, b: params.xs, c: params.xs}",
            "it has 8,000,000 items, but at most 10,000",
        ),
        ("params.xs", None),
        ("'[1.0 / 0.0]'", "for_each of step last: JSON has no number"),
        ("{a: '[1.0 / 0.0]'}", "for_each of step last: JSON has no number"),
        ("'[{1: 2}]'", "a mapping has keys that are not strings"),
        (
            "{" + ", ".join(f"k{i}: params.xs" for i in range(1000)) + "}",
            "it has more than 1,000,000,000 items, but at most 10,000 are allowed",
        ),
    ],
)
def test_items_that_cannot_be_had(for_each: str, message: str | None, workflow: Read) -> None:
    found = last(workflow, f"for_each: {for_each}")
    given = scope(found, xs=[0] * (200 if "{" in for_each else MAX_ITEMS))
    if message is None:
        assert len(evaluate_items(found, found.steps["last"], given)) == MAX_ITEMS
        given = scope(found, xs=[0] * (MAX_ITEMS + 1))
        message = "for_each of step last: it has 10,001 items"
    with pytest.raises(RenderError, match=message):
        evaluate_items(found, found.steps["last"], given)


def test_a_matrix_of_very_many_combinations_is_counted_without_them(
    workflow: Read, errors: Callable[[str], list[Problem]]
) -> None:
    """10^4300 combinations: a number that Python itself refuses to print."""
    names = ", ".join(f"k{i}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]" for i in range(4300))
    text = f"name: a\ndescription: d\nsteps: {{a: {{run: x, for_each: {{{names}}}}}}}\n"
    (found,) = errors(text)
    assert (found.line, found.path) == (3, "steps.a.for_each")
    assert found.message == "found more than 1,000,000,000 items: at most 10,000 are allowed"
    text = text.replace("k4299: [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]", "k4299: []")
    found_none = workflow(text)
    assert evaluate_items(found_none, found_none.steps["a"], scope(found_none)) == ()


@pytest.mark.parametrize(
    ("fields", "path", "offset", "message"),
    [
        ("when: params.s", "when", 6, "expected a boolean, but the expression gives a string"),
        ("when: 1 + 1", "when", 6, "expected a boolean, but the expression gives an integer"),
        ("when: 5", "when", 6, "expected a boolean, but the expression gives an integer"),
        ("when: ''", "when", 6, "expected text, found an empty string"),
        ("when: [true]", "when", 6, "expected a string, found a list"),
        ("when: params.flga", "when", 6, 'unknown parameter "flga": did you mean "flag"?'),
        ("when: params.flag && params.s", "when", 18, "type error: && cannot be applied to"),
        ("when: steps.nope.stdout == ''", "when", 6, 'unknown step "nope"'),
        ("when: '\"open'", "when", 7, "add the closing quote"),
        ('when: "// x"', "when", 7, "the expression is empty"),
        ("when: '{[1]: true}'", "when", 7, "Unsupported map key type"),
        ("when: '{{ params.flag }}'", "when", 7, "not a template: write params.flag"),
        ("when: 'params.s == {{ params.s }}'", "when", 19, "write it without {{ and }}"),
        ("when: item == 1", "when", 6, "item has no value yet: when and for_each are evaluated"),
        ("when: secrets.x == ''", "when", 6, "a secret may be used in env, stdin and secret_files only"),
        ("when: raw(params.flag)", "when", 6, "raw( ) must be the whole template"),
        (
            "for_each: params.s",
            "for_each",
            10,
            "expected a list, but the expression gives a string",
        ),
        ("for_each: item", "for_each", 10, "item has no value yet"),
        ("for_each: 5", "for_each", 10, "expected an expression that gives a list, a list, or a"),
        ("for_each: true", "for_each", 10, "or a mapping of names to either, found true"),
        ("for_each: {}", "for_each", 10, "expected at least one name with a list"),
        ("for_each: {a: 5}", "for_each.a", 14, "expected a list, or an expression that gives one"),
        ("for_each: {a: {b: 1}}", "for_each.a", 14, "expected a list, or an expression"),
        ("for_each: {a b: []}", "for_each.a b", 11, '"a b" is not a valid name'),
        ("for_each: {a: params.flag}", "for_each.a", 14, "expected a list, but"),
        ("for_each: ['{{ params.no }}']", "for_each[0]", 15, 'unknown parameter "no"'),
        ("for_each: ['{{ item }}']", "for_each[0]", 15, "item has no value yet"),
        ("max_parallel: 2", "max_parallel", 0, '"max_parallel" applies only to'),
        ("for_each: [1], max_parallel: 0", "max_parallel", 29, "expected at least 1"),
        (
            "when: steps.many.stdout == 'x'",
            "when",
            24,
            "== cannot be applied to (list(dyn), string)",
        ),
        (
            "when: steps.many.outputs.k == 'x'",
            "when",
            24,
            "a value of type list(dyn) has no fields",
        ),
    ],
)
def test_what_is_wrong(fields: str, path: str, offset: int, message: str, error: Error) -> None:
    start = "  last: {run: x, depends_on: [many], "
    found = error(f"{HEAD}{start}{fields}}}\n")
    assert message in found.message
    assert (found.line, found.path) == (12, f"steps.last.{path}")
    assert found.column == len(start) + offset + 1


def test_items_that_are_written_out_are_counted(error: Error) -> None:
    many = ", ".join("1" for _ in range(101))
    found = error(f"{HEAD}  last: {{run: x, for_each: {{a: [{many}], b: [{many}]}}}}\n")
    assert found.message == "found 10,201 items: at most 10,000 are allowed"


def test_the_item_is_there_for_instances(workflow: Read) -> None:
    found = last(
        workflow,
        "for_each: params.xs\n    max_parallel: 2\n    args: ['{{ item }}', '{{ item.os }}', "
        "\"{{ item == 'a' ? 1 : 2 }}\"]\n    env: {A: '{{ item[0] }}'}\n    workspace: '{{ item }}'",
    )
    assert (found.steps["last"].for_each, found.steps["last"].max_parallel) == ("params.xs", 2)


def test_a_step_that_ran_for_no_item_has_empty_lists(workflow: Read) -> None:
    found = last(workflow, "for_each: steps.many.stdout")
    given = Scope(params={}, run={}, env={}, steps={"many": {"stdout": ""}})
    assert evaluate_items(found, found.steps["last"], given) == ()
    other = last(workflow, "when: steps.many.stdout.size() == 0")
    assert evaluate_when(other, other.steps["last"], given) is True


def test_conditions_are_asked_for_by_themselves(workflow: Read) -> None:
    found = last(
        workflow,
        "when: steps.one.exit_code == 0 && steps.many.status != ''\n"
        "    args: ['{{ steps.one.stderr }}']\n"
        "    for_each: {a: steps.one.result.list, b: ['{{ steps.many.stdout[0] }}']}",
    )
    assert condition_references(found.steps["last"]) == {
        "one": {"exit_code", "result"},
        "many": {"status", "stdout"},
    }
    assert references(found.steps["last"]) == {"one": {"stderr"}}
    assert condition_references(found.steps["one"]) == {}
