"""The fields that limit what a step may reach, and variables that could give it more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import Problem, StepSandbox, Workflow, parse

Read = Callable[[str], Workflow]
Error = Callable[[str | bytes], Problem]
HEAD = "name: a\ndescription: d\n"


def test_entries_of_a_sandbox_are_merged_with_the_defaults(workflow: Read) -> None:
    found = workflow(
        HEAD + "defaults: {sandbox: {network: none, writable: [/srv]}}\n"
        "steps: {a: {run: x}, b: {run: x, sandbox: {network: host}}, c: {run: x, sandbox: {private_tmp: true}}}"
    )
    assert found.steps["a"].sandbox == StepSandbox(network=False, writable=("/srv",))
    assert found.steps["b"].sandbox == StepSandbox(writable=("/srv",))
    assert found.steps["c"].sandbox == StepSandbox(network=False, writable=("/srv",), private_tmp=True)
    assert workflow(HEAD + "steps: {a: {run: x}}").steps["a"].sandbox is None


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("sandbox: {network: some}", "none"),
        ("sandbox: {writable: [relative]}", 'expected an absolute path without .., found "relative"'),
        ("sandbox: {read_only: [/srv/../etc]}", 'expected an absolute path without .., found "/srv/../etc"'),
        ("sandbox: {read_only: ['{{ params.x }}']}", "a template is not allowed here"),
        ("sandbox: {net: none}", 'unknown field "net"'),
        ("sandbox: {}", "expected at least one of network, read_only, writable, private_tmp"),
        ("no_new_privileges: maybe", "expected"),
    ],
)
def test_what_is_wrong_is_said(error: Error, field: str, message: str) -> None:
    assert message in error(HEAD + f"steps: {{a: {{run: x, {field}}}}}").message


def test_steps_without_a_process_have_none(error: Error) -> None:
    found = error(HEAD + "steps: {a: {job_type: approval, sandbox: {network: none}}}")
    assert "sandbox" in found.path


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "ENV", "IFS", "NODE_OPTIONS", "PERL5OPT"])
@pytest.mark.parametrize("where", ["workflow", "step", "defaults", "check"])
def test_variables_that_load_code_take_no_values_from_outside(error: Error, name: str, where: str) -> None:
    env = f"env: {{{name}: 'x{{{{ params.p }}}}'}}"
    text = HEAD + "params: {p: {type: string, default: x}}\n"
    text += {
        "workflow": f"{env}\nsteps: {{a: {{run: x}}}}",
        "step": f"steps: {{a: {{run: x, {env}}}}}",
        "defaults": f"defaults: {{{env}}}\nsteps: {{a: {{run: x, env: {{B: c}}}}}}",
        "check": f"steps: {{a: {{run: x, max_iterations: 2, completion_check: {{run: y, {env}}}}}}}",
    }[where]
    found = error(text)
    assert found.message.startswith(f"{name} can make programs load code, so its value may not come from params")
    assert found.line == (5 if where == "defaults" else 4) - (where == "defaults")


@pytest.mark.parametrize("value", ["fixed", "{{ run.dir }}/lib"])
def test_fixed_values_are_fine(value: str) -> None:
    assert parse(HEAD + f"steps: {{a: {{run: x, env: {{LD_LIBRARY_PATH: '{value}'}}}}}}").ok
