"""Inputs and outputs of steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import (
    Input,
    Output,
    Problem,
    RenderError,
    Scope,
    Workflow,
    is_directory,
    references,
    render,
)
from toban.definition.scalars.artifact_paths import check_below, clean_path

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = """\
name: a
description: d
params: {day: {default: mon}}
steps:
  one:
    run: x
    outputs: [{name: raw, path: raw.json, type: data}, {name: code, path: ./src//lib/}]
"""


def test_artifacts_of_steps(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}    workspace: w
  two:
    run: x
    depends_on: [one]
    inputs: [{{from: one, artifact: raw}}, {{from: one, artifact: code, as: ./in/lib/}}]
    outputs: [{{name: logs, path: "logs/**/*.txt", optional: true}}]
"""
    )
    one, two = found.steps.values()
    assert one.outputs == (
        Output(name="raw", path="raw.json", type="data"),
        Output(name="code", path="src/lib/"),
    )
    assert two.inputs == (
        Input(step="one", artifact="raw", path="raw"),
        Input(step="one", artifact="code", path="in/lib"),
    )
    assert two.outputs == (Output(name="logs", path="logs/**/*.txt", optional=True),)


def test_the_step_before_in_a_list_is_one_it_depends_on(workflow: Read, error: Error) -> None:
    text = """\
name: a
description: d
defaults: {outputs: [{name: log, path: log.txt}]}
steps:
  - {name: one, run: x}
  - {name: two, run: x, inputs: [{from: one, artifact: log, as: before.txt}]}
"""
    found = workflow(text)
    assert found.steps["two"].inputs[0].step == "one"
    assert [step.outputs[0].name for step in found.steps.values()] == ["log", "log"]
    wrong = error(text.replace("inputs", "depends_on: [], inputs"))
    assert 'step "one" is not in depends_on of two: add it there' in wrong.message


@pytest.mark.parametrize(
    ("field", "path", "offset", "message"),
    [
        ("outputs: {a: b}", "outputs", 9, "expected a list of mappings, found a mapping"),
        ("outputs: [raw]", "outputs[0]", 10, "expected a mapping with name, path, type, optional"),
        ("outputs: [{path: x}]", "outputs[0]", 10, 'the entry has no name: add "name"'),
        ("outputs: [{name: x}]", "outputs[0]", 10, 'the entry has no path: add "path"'),
        ("outputs: [{name: x, pth: y, path: z}]", "outputs[0].pth", 20, 'did you mean "path"?'),
        ("outputs: [{name: a b, path: x}]", "outputs[0].name", 17, "is not a valid name"),
        ("outputs: [{name: _x, path: x}]", "outputs[0].name", 17, "is not a valid name"),
        ("outputs: [{name: '7', path: x}]", "outputs[0].name", 17, "it is reserved for directories of steps"),
        ("outputs: [{name: iteration-2, path: x}]", "outputs[0].name", 17, "directories of steps"),
        ("outputs: [{name: x, path: ''}]", "outputs[0].path", 26, "found the workspace itself"),
        ("outputs: [{name: x, path: ./}]", "outputs[0].path", 26, "found the workspace itself"),
        ("outputs: [{name: x, path: /etc}]", "outputs[0].path", 26, "relative to the workspace"),
        ("outputs: [{name: x, path: 'C:/x'}]", "outputs[0].path", 26, "relative to the workspace"),
        ("outputs: [{name: x, path: a/../b}]", "outputs[0].path", 26, "may lead out"),
        ("outputs: [{name: x, path: 'a\\..\\b'}]", "outputs[0].path", 26, "may lead out"),
        (
            "outputs: [{name: x, path: '{{ params.day }}/..'}]",
            "outputs[0].path",
            26,
            "may lead out",
        ),
        (
            "outputs: [{name: x, path: '/{{ params.day }}'}]",
            "outputs[0].path",
            26,
            "relative to the",
        ),
        ("outputs: [{name: x, path: 'a/{{ params.dya }}'}]", "outputs[0].path", 32, "did you mean"),
        ("outputs: [{name: x, path: y, optional: 1}]", "outputs[0].optional", 39, "true or false"),
        ("outputs: [{name: x, path: y}, {name: X, path: z}]", "outputs[1].name", 37, "duplicate"),
        ("inputs: [{from: one}]", "inputs[0]", 9, 'the entry has no artifact: add "artifact"'),
        ("inputs: [{from: oen, artifact: raw}]", "inputs[0].from", 16, 'did you mean "one"?'),
        (
            "inputs: [{from: two, artifact: raw}]",
            "inputs[0].from",
            16,
            "cannot have its own output",
        ),
        ("inputs: [{from: one, artifact: rwa}]", "inputs[0].artifact", 31, 'did you mean "raw"?'),
        ("inputs: [{from: one, artifact: zzzz}]", "inputs[0].artifact", 31, "(known: raw, code)"),
        ("inputs: [{from: one, artifact: raw, as: /x}]", "inputs[0].as", 40, "relative to the"),
        ("inputs: [{from: one, artifact: raw, as: ../x}]", "inputs[0].as", 40, "may lead out"),
        ("inputs: [{from: one, artifact: raw, as: .}]", "inputs[0].as", 40, "the workspace itself"),
        ("inputs: [{from: one, artifact: raw, as: '{{ 1 }}'}]", "inputs[0].as", 40, "a template"),
        (
            "inputs: [{from: one, artifact: raw, as: x}, {from: one, artifact: code, as: X/y}]",
            *("inputs[1].as", 76, '"X/y" is taken by the input on line 11: give it another "as"'),
        ),
        (
            "inputs: [{from: one, artifact: raw}, {from: one, artifact: raw}]",
            *("inputs[1].artifact", 59, '"raw" is taken by the input on line 11'),
        ),
    ],
)
def test_what_is_wrong(field: str, path: str, offset: int, message: str, error: Error) -> None:
    found = error(f"{HEAD}  two:\n    run: x\n    depends_on: [one]\n    {field}\n")
    assert message in found.message
    assert (found.line, found.column, found.path) == (11, offset + 5, f"steps.two.{path}")


def test_inputs_of_steps_without_outputs(error: Error) -> None:
    found = error(
        f"{HEAD}  two: {{job_type: approval}}\n"
        "  three: {run: x, depends_on: [two], inputs: [{from: two, artifact: raw}]}\n"
    )
    assert found.message == 'unknown artifact "raw" of step "two" (it has no outputs)'


def test_an_output_that_is_wrong_is_reported_once(error: Error) -> None:
    found = error(
        "name: a\ndescription: d\nsteps:\n  one: {run: x, outputs: [{path: y}]}\n"
        "  two: {run: x, depends_on: [one], inputs: [{from: one, artifact: raw}]}\n"
    )
    assert found.path == "steps.one.outputs[0]"


def rendered(workflow: Workflow, day: str) -> tuple[Output, ...]:
    scope = Scope(params={"day": day}, run={}, env={}, steps={"one": {"stdout": "o"}})
    return render(workflow, workflow.steps["two"], scope).outputs


def test_paths_are_rendered_and_checked_again(workflow: Read) -> None:
    found = workflow(
        f"{HEAD}  two:\n    run: x\n    depends_on: [one]\n    outputs:\n"
        '      - {name: a, path: "{{ steps.one.stdout }}/{{ params.day }}", type: t}\n'
    )
    assert references(found.steps["two"]) == {"one": {"stdout"}}
    assert rendered(found, "mon.txt") == (Output(name="a", path="o/mon.txt", type="t"),)
    assert rendered(found, "/./x//y/") == (Output(name="a", path="o/x/y/", type="t"),)
    for day in ("..", "x/../y", "..\\x"):
        with pytest.raises(RenderError, match=r"path of output a of step two: .* may lead out"):
            rendered(found, day)


@pytest.mark.parametrize("path", ["{{ params.day }}", "./{{ params.day }}"])
def test_a_rendered_path_stays_inside(path: str, workflow: Read) -> None:
    found = workflow(
        f"{HEAD}  two: {{run: x, outputs: [{{name: a, path: '{path}'}}]}}\n",
    )
    for day in ("", ".", "./"):
        with pytest.raises(RenderError, match="found the workspace itself"):
            rendered(found, day)
    assert rendered(found, "a") == (Output(name="a", path="a"),)


@pytest.mark.parametrize(
    ("path", "directory"),
    [("a.txt", False), ("a/b", False), ("a/", True), ("*.txt", True), ("a?", True), ("[ab]", True)],
)
def test_which_outputs_are_directories_for_certain(path: str, directory: bool) -> None:
    assert is_directory(path) is directory


@pytest.mark.parametrize(
    ("path", "clean"),
    [("a", "a"), ("./a", "a"), ("././a//b/./c", "a/b/c"), ("a/", "a/"), ("a/.", "a"), (".a", ".a")],
)
def test_paths_are_cleaned(path: str, clean: str) -> None:
    assert clean_path(check_below(path)) == clean
