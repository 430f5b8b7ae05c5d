"""From an attempt to a process: deadlines, environment and outputs of earlier steps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from doubles.sandbox import InlineSandbox
from toban.definition import NO_EVENT, RenderError, Resources, parse
from toban.limits import MAX_SEEN_BYTES
from toband.domain.attempt_model import Attempt, AttemptState, Progress, TreeCause
from toband.domain.plan import Plan
from toband.domain.run_model import Run, RunState, StepState, Trigger
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.launch_spec import LaunchBuilder, TimeLeft
from toband.engine.execution.template_scope import STDOUT_LIMIT, TemplateScope
from toband.ports import Launch, LogKind, LogPage, OutputEnd, OutputTooLargeError
from toband.supervise.files.run_files import RunFiles

START = datetime(2026, 2, 1, tzinfo=UTC)


class MemoryLogs:
    """`ports.Logs` over what a test says that steps printed."""

    def __init__(self, printed: dict[tuple[str, LogKind], bytes]) -> None:
        self._printed = printed
        self.asked: list[tuple[str, LogKind]] = []

    async def read(self, attempt: Attempt, offset: int, skip: int = 0, size: int = 0) -> LogPage:
        return LogPage(pieces=(), offset=offset)

    def printed(self, attempt: Attempt, kind: LogKind, limit: int) -> bytes:
        self.asked.append((attempt.step, kind))
        data = self._printed.get((attempt.step, kind), b"")
        if len(data) > limit:
            raise OutputTooLargeError
        return data

    async def ends(self, attempt: Attempt, limit: int) -> Mapping[LogKind, OutputEnd]:
        return {}

    async def progress(self, attempts: Sequence[Attempt]) -> Sequence[Progress | None]:
        return [None for _ in attempts]

    def watching(self, run_id: str, event: asyncio.Event) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class NoValues:
    """`ports.Values` of steps that left nothing large."""

    def spill(self, attempt: Attempt, result: Any, outputs: Mapping[str, str]) -> int:
        raise AssertionError

    def load(self, attempt: Attempt) -> tuple[Any, Mapping[str, str]]:
        raise AssertionError


def plan_of(text: str) -> Plan:
    parsed = parse(f"name: w\ndescription: x\n{text}")
    assert parsed.ok, parsed.problems
    workflow = parsed.documents[0].workflow
    assert workflow is not None
    return Plan(workflow)


def attempt_of(step: str) -> Attempt:
    return Attempt(
        id=f"id-{step}",
        run_id="r1",
        step=step,
        number=1,
        ordinal=0,
        token=f"token-{step}",
        state=AttemptState.STARTING,
        created_at=START,
    )


def run_of(plan: Plan, params: dict[str, Any] | None = None) -> Run:
    made = plan.new_run(run_id="r1", version=1, params=params or {}, trigger=Trigger.API, caller="", at=START)
    return replace(made, state=RunState.RUNNING, started_at=START, number=7)


def build(
    plan: Plan,
    run: Run,
    step: str,
    *,
    after: float = 0.0,
    base_dir: str = "",
    logs: MemoryLogs | None = None,
) -> Launch:
    files = RunFiles("/state/runs")
    launch_builder = LaunchBuilder(
        files=files,
        seen=TemplateScope(logs or MemoryLogs({}), NoValues(), files.work),
        evaluation=ExpressionEvaluator(InlineSandbox()),
        server="unix:///s",
    )
    left = None if run.timeout is None else max(0.0, run.timeout - after)
    attempt = attempt_of(step)
    rendered = asyncio.run(launch_builder.rendered(plan, run, attempt, base_dir=base_dir))
    return launch_builder.build(plan, run, attempt, rendered, base_dir=base_dir, left=TimeLeft(run=left))


def test_files_of_the_environment_are_below_env() -> None:
    plan = plan_of(
        "env: {A: x}\nenv_file: .env\n"
        "steps:\n  one: {run: x, env: {LANG: C}, env_file: [{path: conf/../own.env, optional: true}, /etc/x.env]}\n"
        "  two: {run: x, depends_on: [one]}\n"
    )
    found = build(plan, run_of(plan), "one", base_dir="/srv/flows")
    assert found.env_files == (("/srv/flows/.env", False), ("/srv/flows/own.env", True), ("/etc/x.env", False))
    # What the daemon sets without being asked may be replaced, what the definition or the run sets may not.
    assert {"PATH", "HOME"} <= set(found.env_replaced)
    assert not {"A", "LANG", "TOBAN_RUN_ID", "TOBAN_OUTPUT"} & set(found.env_replaced)
    assert build(plan, run_of(plan), "two").env_files == (("/state/runs/r1/work/.env", False),)


def test_steps_see_the_event_that_started_their_run() -> None:
    plan = plan_of("steps: [{name: a, job_type: exec, target: x, args: ['{{ event.type }}!']}]\n")
    run = run_of(plan)
    assert list(build(plan, run, "a").argv[1:]) == ["!"]
    event = {**NO_EVENT, "type": "DATA_CHANGED"}
    assert list(build(plan, replace(run, event=event), "a").argv[1:]) == ["DATA_CHANGED!"]


@pytest.mark.parametrize(
    ("fields", "step", "after", "expected"),
    [
        ("", "", 5, (None, TreeCause.TIMEOUT)),
        ("", "timeout: 30s", 5, (30.0, TreeCause.TIMEOUT)),
        ("timeout: 60s", "", 5, (55.0, TreeCause.RUN_TIMEOUT)),
        ("timeout: 60s", "timeout: 30s", 5, (30.0, TreeCause.TIMEOUT)),
        ("timeout: 60s", "timeout: 30s", 40, (20.0, TreeCause.RUN_TIMEOUT)),
        ("timeout: 60s", "timeout: 60s", 0, (60.0, TreeCause.TIMEOUT)),
        ("timeout: 60s", "timeout: 30s", 90, (0.0, TreeCause.RUN_TIMEOUT)),
    ],
)
def test_the_nearer_deadline_goes_with_the_process(
    fields: str, step: str, after: float, expected: tuple[float | None, TreeCause]
) -> None:
    plan = plan_of(f"{fields}\nsteps: [{{name: a, run: 'true', {step}}}]\n")
    launch = build(plan, run_of(plan), "a", after=after)
    assert (launch.timeout, launch.timeout_cause, launch.idle_timeout) == (*expected, None)


def test_the_idle_timeout_goes_with_the_process() -> None:
    plan = plan_of("steps: [{name: a, run: 'true', timeout: 30s, idle_timeout: 1m}]\n")
    launch = build(plan, run_of(plan), "a")
    assert (launch.timeout, launch.idle_timeout) == (30, 60)


def test_the_workspace() -> None:
    text = "steps: {{a: {{run: pwd, {}}}}}"
    cases = {
        ("", ""): "/state/runs/r1/work",
        ("", "/base"): "/base",
        ("workspace: sub/../other", "/base"): "/base/other",
        ("workspace: sub", ""): "/state/runs/r1/work/sub",
        ("workspace: /abs", "/base"): "/abs",
    }
    for (field, base_dir), expected in cases.items():
        plan = plan_of(text.format(field))
        assert build(plan, run_of(plan), "a", base_dir=base_dir).workspace == expected


def test_only_what_is_used_of_earlier_steps_is_read() -> None:
    plan = plan_of("""
steps:
  - {name: a, run: "true"}
  - {name: b, run: "true"}
  - {name: c, run: "echo {{ steps.a.stdout }} {{ steps.b.exit_code }}"}
""")
    run = run_of(plan)
    steps = dict(run.steps)
    for name in ("a", "b"):
        steps[name] = replace(steps[name], state=StepState.SUCCEEDED, attempt=attempt_of(name), exit_code=0)
    logs = MemoryLogs({("a", LogKind.STDOUT): b"line\n\n"})
    launch = build(plan, replace(run, steps=steps), "c", logs=logs)
    assert logs.asked == [("a", LogKind.STDOUT)]
    values = [value for name, value in launch.env.items() if name.startswith("TOBAN_V")]
    assert values == ["line\n", "0"], "one newline at the end is taken away, as $( ) would"


def test_what_many_instances_left_is_read_up_to_a_limit() -> None:
    """Ten thousand outputs of 64 KiB would be 640 MB in the memory of the daemon."""
    plan = plan_of("""
steps:
  - {name: a, run: "true", for_each: [1]}
  - {name: c, job_type: python, target: "m:f", args: ["{{ steps.a.stdout }}"]}
""")
    run = run_of(plan)
    count = MAX_SEEN_BYTES // STDOUT_LIMIT + 100
    steps = {**run.steps, "a": replace(run.steps["a"], instances=count)}
    for number in range(count):
        name = f"a[{number}]"
        steps[name] = replace(run.steps["a"], id=name, parent="a", attempt=attempt_of(name))
    logs = MemoryLogs({(name, LogKind.STDOUT): b"x" * STDOUT_LIMIT for name in steps})
    with pytest.raises(RenderError, match="its instances left more than 16MiB"):
        build(plan, replace(run, steps=steps), "c", logs=logs)
    assert len(logs.asked) <= MAX_SEEN_BYTES // STDOUT_LIMIT + 1


def test_a_step_that_did_not_run_has_empty_values() -> None:
    plan = plan_of("""
steps:
  - {name: a, run: "true", on_failure: continue}
  - name: b
    job_type: exec
    target: echo
    args: ["{{ steps.a.stdout }}|{{ steps.a.stderr }}|{{ steps.a.exit_code }}|{{ steps.a.status }}"]
  - {name: c, job_type: python, target: "m:f", args: ["{{ steps.a.result }}", "{{ steps.a.outputs }}"]}
""")
    run = run_of(plan)
    steps = {**run.steps, "a": replace(run.steps["a"], state=StepState.FAILED)}
    run = replace(run, steps=steps)
    assert build(plan, run, "b").argv == ("echo", "||-1|FAILED")
    call = json.loads(build(plan, run, "c").env["TOBAN_CALL"])
    assert call["args"] == [None, {}]


def test_a_run_knows_when_it_was_due() -> None:
    plan = plan_of("""
steps:
  - {name: a, job_type: exec, target: echo, args: ["{{ run.scheduled_at }}", "{{ run.missed }}"]}
""")
    run = run_of(plan)
    assert build(plan, run, "a").argv == ("echo", "", "[]")
    due = replace(run, scheduled_at=START, missed=(START - timedelta(hours=1),))
    at, before = START.isoformat(), (START - timedelta(hours=1)).isoformat()
    assert build(plan, due, "a").argv == ("echo", at, f'["{before}"]')


def test_output_beyond_the_limit_is_an_error_and_never_a_cut() -> None:
    plan = plan_of("""
steps:
  - {name: a, run: "true"}
  - {name: b, run: "echo {{ steps.a.stderr }}"}
""")
    run = run_of(plan)
    run = replace(run, steps={**run.steps, "a": replace(run.steps["a"], attempt=attempt_of("a"))})
    logs = MemoryLogs({("a", LogKind.STDERR): b"x" * (STDOUT_LIMIT + 1)})
    with pytest.raises(RenderError, match=r"steps\.a\.stderr: it is larger than 64 KiB"):
        build(plan, run, "b", logs=logs)
    fits = MemoryLogs({("a", LogKind.STDERR): b"\xff" * STDOUT_LIMIT})
    with pytest.raises(RenderError, match="at most"):
        # Bytes that are no UTF-8 become longer as text; what cannot be passed on is refused.
        build(plan, run, "b", logs=fits)


posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no users and no pwsh to find")


def test_limits_go_with_the_process() -> None:
    plan = plan_of("steps: {a: {run: x, resources: {memory: 64MiB, nice: 5}}, b: {run: x}}")
    run = run_of(plan)
    assert build(plan, run, "a").resources == Resources(memory=2**26, nice=5)
    assert build(plan, run, "b").resources is None


@posix
def test_a_step_has_the_home_of_its_user() -> None:
    import pwd

    root = pwd.getpwuid(0)
    for user in (root.pw_name, "0"):
        plan = plan_of(f"steps: {{a: {{run: x, user: {user}}}}}")
        launch = build(plan, run_of(plan), "a")
        assert launch.user == user
        names = ("HOME", "USER", "LOGNAME")
        assert [launch.env[name] for name in names] == [root.pw_dir, root.pw_name, root.pw_name]
    plan = plan_of("steps: {a: {run: x}}")
    launch = build(plan, run_of(plan), "a")
    assert (launch.user, launch.env["USER"]) == ("", pwd.getpwuid(os.geteuid()).pw_name)


@posix
@pytest.mark.parametrize("user", ["no-such-user-here", "4294967294"])
def test_an_unknown_user_fails_the_step(user: str) -> None:
    plan = plan_of(f"steps: {{a: {{run: x, user: {user}}}}}")
    with pytest.raises(RenderError, match=f"cannot start step a: there is no user {user} on"):
        build(plan, run_of(plan), "a")


@posix
def test_cmd_steps_run_on_windows_only() -> None:
    plan = plan_of("steps: {a: {job_type: cmd, target: dir}}")
    with pytest.raises(RenderError, match="run on Windows only; use job_type: shell"):
        build(plan, run_of(plan), "a")


@posix
def test_powershell_steps_use_the_pwsh_of_their_path(tmp_path: Path) -> None:
    text = "steps: {{a: {{job_type: powershell, target: Get-Date, env: {{PATH: '{}'}}}}}}"
    plan = plan_of(text.format(tmp_path))
    with pytest.raises(RenderError, match=f"there is no pwsh in {tmp_path}; install PowerShell"):
        build(plan, run_of(plan), "a")
    program = tmp_path / "pwsh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    argv = build(plan, run_of(plan), "a").argv
    assert argv[0] == str(program)
    assert argv[-2] == "-Command"
    assert argv[-1].startswith("Get-Date\n")
