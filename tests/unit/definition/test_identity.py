"""Ids and titles of workflows and steps, and the order of listed steps."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition import Problem, Workflow, parse
from toban.definition.scalars.derived_ids import derive_id
from toban.definition.scalars.names import valid_name

Read = Callable[[str], Workflow]
Error = Callable[[str], Problem]
Errors = Callable[[str], list[Problem]]

HEAD = "name: a\ndescription: d\n"


@pytest.mark.parametrize(
    ("name", "derived"),
    [
        ("Build the App", "build-the-app"),
        ("  run: all  (fast!) ", "run-all-fast"),
        ("Prüfung Café", "prufung-cafe"),
        ("🚀 deploy", "deploy"),
        ("データ取得", "step-8d172295"),
        ("🚀", "step-ebbc0b28"),
        ("ビルド 1", "1-5bd1efb8"),
        ("Build 東京", "build-7e69cf9a"),
        ("_", "step-d2e2adf7"),
        ("x y" * 40, f"{('x-y' * 40)[:55]}-9e379903"),
    ],
)
def test_an_id_is_derived_from_the_name_alone(name: str, derived: str) -> None:
    assert derive_id(name, "step") == derived
    assert valid_name(derived)


@given(st.text(min_size=1))
@settings(deadline=None)
def test_every_derived_id_is_valid(name: str) -> None:
    assert valid_name(derive_id(name, "step"))


def test_both_forms_of_a_character_give_one_id() -> None:
    name = "データ取得"
    assert derive_id(unicodedata.normalize("NFD", name), "step") == derive_id(name, "step")


def test_ids_and_titles(workflow: Read) -> None:
    found = workflow(
        """\
id: nightly
name: 夜間バッチ
description: d
steps:
  - {name: データ取得, run: x}
  - {name: build, title: ビルド, run: x}
  - {id: send, name: レポート送付, run: x}
  - {name: plain, run: x}
"""
    )
    assert (found.name, found.title) == ("nightly", "夜間バッチ")
    assert {step.id: step.name for step in found.steps.values()} == {
        "step-8d172295": "データ取得",
        "build": "ビルド",
        "send": "レポート送付",
        "plain": "plain",
    }
    assert found.steps["build"].depends_on == ("step-8d172295",)


@pytest.mark.parametrize(
    ("head", "name", "title"),
    [
        ("id: b", "b", "b"),
        ("id: b\ntitle: t", "b", "t"),
        ("name: b\ntitle: t", "b", "t"),
        ("name: b", "b", "b"),
    ],
)
def test_the_id_of_a_workflow(workflow: Read, head: str, name: str, title: str) -> None:
    found = workflow(f"{head}\ndescription: d\nsteps: {{a: {{run: x, id: a, title: あ}}}}")
    assert (found.name, found.title, found.steps["a"].name) == (name, title, "あ")


def test_an_id_does_not_depend_on_the_position(workflow: Read) -> None:
    one = workflow(f"{HEAD}steps: [{{name: 取得, run: x}}, {{name: 加工, run: x}}]")
    other = workflow(f"{HEAD}steps: [{{name: 加工, run: x}}, {{name: 新規, run: x}}, {{name: 取得, run: x}}]")
    assert set(one.steps) < set(other.steps)


def test_validate_knows_derived_ids() -> None:
    (document,) = parse(f"{HEAD}steps: [{{name: 取得, run: x}}, {{name: b, run: x}}]").documents
    assert list(document.derived.values()) == ["取得"]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (
            "name: 夜間バッチ\nsteps: {a: {run: x}}",
            "name",
            '"夜間バッチ" is not a valid id: add an id, such as "id: workflow-67865a31", and the name is the title',
        ),
        (
            "name: Nightly Report\nsteps: {a: {run: x}}",
            "name",
            '"Nightly Report" is not a valid id: add an id, such as "id: nightly-report", and the name is the title',
        ),
        (
            "id: a\nname: b\ntitle: c\nsteps: {a: {run: x}}",
            "title",
            'the title is given twice, as "name" and as "title": keep one',
        ),
        (
            "id: 7\nname: b\nsteps: {a: {run: x}}",
            "id",
            "expected a string, found the number 7: remove it if a database made it, or put it in quotes",
        ),
        ("title: b\nsteps: {a: {run: x}}", "name", 'the workflow has no name: add "name"'),
        (
            "name: a\nsteps: {a: {run: x, id: b}}",
            "steps.a.id",
            'the id is the key, "a": remove "id", or write b as the key',
        ),
        (
            "name: a\nsteps: {a: {run: x, name: b, title: c}}",
            "steps.a.title",
            'the title is given twice, as "name" and as "title": keep one',
        ),
        (
            "name: a\nsteps: [{id: a, name: b, title: c, run: x}]",
            "steps.a.title",
            'the title is given twice, as "name" and as "title": keep one',
        ),
        (
            "name: a\nsteps: {取得: {run: x}}",
            "steps.取得",
            '"取得" is not a valid id: write an id as the key, such as step-03ecfee0, and this as the name',
        ),
        (
            "name: a\nsteps: [{name: Build App, run: x}, {name: build-app, run: x}]",
            "steps[1].name",
            'duplicate step "build-app": already defined on line 2',
        ),
        (
            "name: a\nsteps: [{name: build-app, run: x}, {name: Build App, run: x}]",
            "steps[1].name",
            'the name gives the id "build-app", which is already defined on line 2: add another "id"',
        ),
        (
            "name: a\nsteps: [{id: b, run: x}, {id: b, name: c, run: x}]",
            "steps[1].id",
            'duplicate step "b": already defined on line 2',
        ),
        (f"name: a\nsteps: [{{name: {'x' * 201}, run: x}}]", "steps[0].name", "it has 201 characters: at most 200"),
        (
            "name: a\nsteps: [{name: 取得, run: x}, {name: b, run: x, depends_on: [取得]}]",
            "steps.b.depends_on[0]",
            'unknown step "取得": that is a title, write the id "step-03ecfee0"',
        ),
        (
            "name: a\nscopes: {s: [取得]}\nsteps: [{name: 取得, run: x}]",
            "scopes.s[0]",
            'unknown step "取得": that is a title, write the id "step-03ecfee0"',
        ),
        (
            "name: a\nsteps: [{name: 取得, run: x}, {name: b, run: \"echo {{ steps['取得'].stdout }}\"}]",
            "steps.b.run",
            'unknown step "取得": that is a title, write the id "step-03ecfee0"',
        ),
        (
            "name: a\nsteps: [{name: 取得, run: x}, {name: b, run: x, inputs: [{from: 取得, artifact: o}]}]",
            "steps.b.inputs[0].from",
            'unknown step "取得": that is a title, write the id "step-03ecfee0"',
        ),
        ("name: a\ndefaults: {id: x}\nsteps: {a: {run: x}}", "defaults.id", '"id" cannot be inherited'),
        ("jobs: {a: {id: b, run: x}}", "jobs.a.id", 'the id is the key, "a": remove "id", or write b as the key'),
    ],
)
def test_what_to_write_instead(error: Error, text: str, path: str, message: str) -> None:
    found = error(text)
    assert found.path == path
    assert found.message.startswith(message)


def test_step_order_sorts(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}steps:
  - {{name: last, run: x, step_order: 30}}
  - {{name: first, run: x, step_order: 0}}
  - {{name: second, run: x, step_order: 7}}
"""
    )
    assert list(found.steps) == ["first", "second", "last"]
    assert [step.depends_on for step in found.steps.values()] == [(), ("first",), ("second",)]


@pytest.mark.parametrize(
    ("steps", "path", "message"),
    [
        (
            "[{name: a, run: x, step_order: 1}, {name: b, run: x}, {name: c, run: x, step_order: 3}]",
            "steps[1]",
            'the step has no "step_order", but others have: give it to every step, or to none',
        ),
        (
            "[{name: a, run: x, step_order: 1}, {name: b, run: x, step_order: 1}]",
            "steps[1].step_order",
            "step_order 1 is already given on line 3: give each step another number",
        ),
        ("[{name: a, run: x, step_order: '1'}]", "steps.a.step_order", 'expected an integer, found "1"'),
        ("[{name: a, run: x, step_order: true}]", "steps.a.step_order", "expected an integer, found true"),
        ("[{name: a, run: x, step_order: -1}]", "steps.a.step_order", "expected at least 0, found the number -1"),
        ("{a: {run: x, step_order: 1}}", "steps.a.step_order", 'unknown field "step_order": write depends_on'),
        ("[{name: a, run: x, stepOrder: 1}]", "steps.a.stepOrder", 'unknown field "stepOrder": write step_order'),
    ],
)
def test_wrong_step_orders(error: Error, steps: str, path: str, message: str) -> None:
    found = error(f"{HEAD}steps: {steps}")
    assert (found.path, found.message) == (path, message)
