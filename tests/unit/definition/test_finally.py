"""`finally` and the handlers: their layout, what they may use, and what may not use them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import FailurePolicy, Problem, Workflow, parse
from toban.definition.checks.document_check import MAX_STEPS

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]

HEAD = "name: a\ndescription: d\n"
STEPS = f"{HEAD}steps: {{one: {{run: x}}, two: {{run: x, depends_on: [one]}}}}\n"


def test_they_come_after_the_steps_and_continue_after_a_failure(workflow: Read) -> None:
    found = workflow(f"{STEPS}finally: [{{name: f, run: x}}, {{name: g, run: x, on_failure: abort}}]\n")
    assert list(found.steps) == ["one", "two", "f", "g"]
    assert [step.is_finally for step in found.steps.values()] == [False, False, True, True]
    assert [step.depends_on for step in found.steps.values()] == [(), ("one",), (), ("f",)]
    policies = [FailurePolicy.ABORT, FailurePolicy.ABORT, FailurePolicy.CONTINUE, FailurePolicy.ABORT]
    assert [step.on_failure for step in found.steps.values()] == policies
    assert found.steps["f"].on_failure_exhausted is FailurePolicy.CONTINUE
    assert found.finally_timeout == 300
    assert workflow(f"{STEPS}finally_timeout: 1h\nfinally: {{run: x}}\n").finally_timeout == 3600


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        ("finally: {f: {run: x}, g: {run: x}}", ["f", "g"]),
        ("finally: {f: {run: x}}", ["f"]),
        ("finally: [{name: f, run: x}]", ["f"]),
        ("finally: {run: x}", ["finally"]),
        ("finally: {name: f, run: x}", ["f"]),
        ("finally: {job_type: exec, target: x, env: {A: b}}", ["finally"]),
        ("on_success: {run: x}\non_failure: {run: x}\non_cancel: {run: x}", ["on_success", "on_failure", "on_cancel"]),
        ("on_cancel: {run: x}\nfinally: {f: {run: {run: x}}}", []),
    ],
)
def test_a_step_a_list_or_a_mapping(written: str, ids: list[str]) -> None:
    parsed = parse(f"{STEPS}{written}\n")
    found = parsed.documents[0].workflow
    assert (list(found.steps)[2:] if found is not None else []) == ids


def test_handlers_have_a_condition_besides_their_own(workflow: Read) -> None:
    found = workflow(
        f"""{STEPS}
on_success: {{run: x}}
on_failure: [{{name: f, run: x, when: "size(run.error) > 0 // why"}}, {{name: g, run: x}}]
on_cancel: {{c: {{run: x}}}}
"""
    )
    failed = 'run.state == "FAILED" || run.state == "TIMED_OUT"'
    assert {name: step.when for name, step in found.steps.items() if step.is_finally} == {
        "on_success": 'run.state == "SUCCEEDED"',
        "f": f"({failed}) && (size(run.error) > 0 // why\n)",
        "g": failed,
        "c": 'run.state == "CANCELLED"',
    }
    assert found.steps["g"].depends_on == ("f",)


def test_they_may_use_every_other_step_and_the_result(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}
steps:
  one: {{run: x, outputs: [{{name: o, path: o}}]}}
  two: {{run: x}}
finally:
  f:
    run: echo {{{{ steps.one.status }}}} {{{{ steps.two.stdout }}}} {{{{ run.state }}}} {{{{ run.error }}}}
    when: run.failed_steps == ["one"]
    inputs: [{{from: one, artifact: o}}]
  g: {{run: "echo {{{{ steps.f.status }}}}", depends_on: [f]}}
"""
    )
    assert found.steps["f"].inputs[0].step == "one"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("finally: ./clean.sh", "finally", 'expected a step, or a mapping or a list of steps, found "./clean.sh"'),
        ("finally: []", "finally", "expected at least one step, found none"),
        ("finally: {f: ./x}", "finally.f", 'expected a mapping such as {run: ./work.sh}, found "./x"'),
        ("finally: {runs: x}", "finally.runs", "expected a mapping such as {run: ./work.sh}"),
        (
            "on_failure: continue",
            "on_failure",
            'found "continue": for the policy of every step, write defaults: {on_failure: …}',
        ),
        ("finally: {one: {run: x}}", "finally.one", 'duplicate step "one": steps has one on line 3'),
        ("finally: {f: {run: x}}\non_cancel: [{name: f, run: x}]", "on_cancel.f", 'duplicate step "f": finally has'),
        (
            "finally: {f: {run: x, depends_on: [one]}}",
            "finally.f.depends_on[0]",
            '"one" has ended before any finally step runs: remove it',
        ),
        (
            "finally: {f: {run: 'echo {{ steps.g.status }}'}, g: {run: x}}",
            "finally.f.run",
            'step "g" does not come before "f": add it to depends_on of f',
        ),
        ("finally: {f: {run: 'echo {{ run.status }}'}}", "finally.f.run", 'did you mean "state"?'),
        ("scopes: {s: [f]}\nfinally: {f: {run: x}}", "scopes.s[0]", 'finally steps run in every scope: remove "f"'),
        ("finally_timeout: 0", "finally_timeout", "must be greater than zero"),
        ("cleanup: {run: x}", "cleanup", 'unknown field "cleanup": write finally'),
        ("on_exit: {run: x}", "on_exit", 'unknown field "on_exit": write finally'),
    ],
)
def test_what_is_wrong_and_what_to_write(errors: Errors, text: str, path: str, message: str) -> None:
    (found,) = errors(f"{STEPS}{text}\n")
    assert found.path == path
    assert message in found.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("run: x, depends_on: [f]", '"f" runs when all steps have ended: only finally steps can depend on it'),
        ("run: 'echo {{ steps.f.status }}'", 'step "f" runs when all steps have ended: only other finally steps'),
        (
            "run: 'echo {{ run.state }}'",
            "run.state is known only when all steps have ended: use it in a step of finally",
        ),
        ("run: x, when: size(run.failed_steps) > 0", "run.failed_steps is known only when"),
        ("run: x, depends_on: [f], inputs: [{from: f, artifact: o}]", '"f" runs when all steps have ended'),
    ],
)
def test_other_steps_know_nothing_of_them(errors: Errors, fields: str, message: str) -> None:
    last = "finally: {f: {run: x, outputs: [{name: o, path: o}]}}"
    (found,) = errors(f"{HEAD}steps: {{one: {{{fields}}}}}\n{last}\n")
    assert message in found.message


def test_the_environment_of_the_workflow_has_no_result(errors: Errors) -> None:
    (found,) = errors(f"{STEPS}env: {{A: '{{{{ run.state }}}}'}}\nfinally: {{run: x}}\n")
    assert "run.state is known only when all steps have ended" in found.message


def test_all_steps_together_are_limited(errors: Errors) -> None:
    many = ", ".join(f"s{number}: {{run: x}}" for number in range(MAX_STEPS))
    (found,) = errors(f"{HEAD}steps: {{{many}}}\nfinally: {{run: x}}\n")
    assert found.message == "found more than 10,000 steps with those of finally: no more are allowed"
