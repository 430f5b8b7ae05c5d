"""Python steps: values in, values out, and errors in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, error_class, run_state, step_states, steps_of
from helpers.wait import wait_until
from toban.v1 import dead_letter_pb2, event_pb2, run_pb2

OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR

MODULE = """
import asyncio, os, sys

def echo(*args, **kwargs):
    print("called")
    return {"args": args, "kwargs": kwargs, "types": [type(each).__name__ for each in args]}

async def later(value):
    await asyncio.sleep(0)
    return value + 1

def fail(text):
    raise ValueError(f"not {text}")

also_fail = fail

def leave(code):
    sys.exit(code)

def nothing():
    return None

def strange():
    return object()

def big_failure():
    from toban.step import WorkflowResult
    raise WorkflowResult(False, "x" * 500_000, "only half of it: 日本")

def huge():
    return "x" * 2_000_000

def surroundings():
    names = sorted(name for name in os.environ if name.startswith("TOBAN_"))
    return {"cwd": os.getcwd(), "argv": sys.argv, "names": names}

class Box:
    @staticmethod
    def inside():
        return [1, 2.5, "三", None, True, {"a": []}]

number = 5
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    (directory / "work_steps.py").write_text(MODULE)
    (directory / "broken_steps.py").write_text("import does_not_exist_anywhere\n")
    (directory / "raising_steps.py").write_text("raise RuntimeError('while it was loaded')\n")
    return directory


def call(daemon: Daemon, base: Path, target: str, args: object = (), kwargs: object = None) -> run_pb2.Run:
    name = "py-" + "".join(c if c.isalnum() else "-" for c in target)
    step = {
        "name": "call",
        "job_type": "python",
        "target": target,
        "args": list(args) if isinstance(args, (list, tuple)) else args,
        "kwargs": kwargs or {},
    }
    params: dict[str, Any] = {
        "n": {"type": "integer", "default": 4},
        "f": {"type": "number", "default": 4},
        "b": {"type": "boolean", "default": True},
        "l": {"type": "list", "default": [1, "a"]},
        "m": {"type": "mapping", "default": {"k": 1.5}},
        "s": {"type": "string", "default": "4"},
    }
    definition = {"name": name, "description": "x", "params": params, "steps": [step]}
    daemon.apply(json.dumps(definition), str(base))
    return daemon.run(name)


def result(run: run_pb2.Run) -> Any:
    assert run_state(run) == "SUCCEEDED", run.error_message
    return json.loads(run.steps[0].result_json)


def test_arguments_keep_their_types(daemon: Daemon, base: Path) -> None:
    templates = [f"{{{{ params.{name} }}}}" for name in ("n", "f", "b", "l", "m", "s")]
    args = [1, "x", *templates, "{{ params.n }} and {{ params.s }}", None]
    run = call(daemon, base, "work_steps:echo", args, {"deep": {"n": ["{{ params.n + 1 }}"]}})
    found = result(run)
    assert found["args"] == [1, "x", 4, 4, True, [1, "a"], {"k": 1.5}, "4", "4 and 4", None]
    assert found["types"] == [
        "int",
        "str",
        "int",
        "float",
        "bool",
        "list",
        "dict",
        "str",
        "str",
        "NoneType",
    ]
    assert found["kwargs"] == {"deep": {"n": [5]}}
    assert daemon.log_of(run.id) == {OUT: b"called\n"}


def test_results_of_every_kind_come_back(daemon: Daemon, base: Path) -> None:
    assert result(call(daemon, base, "work_steps:Box.inside")) == [
        1,
        2.5,
        "三",
        None,
        True,
        {"a": []},
    ]
    assert result(call(daemon, base, "work_steps:later", [41])) == 42
    nothing = call(daemon, base, "work_steps:nothing")
    assert (run_state(nothing), nothing.steps[0].result_json) == ("SUCCEEDED", "")


def test_an_exception_fails_the_step_and_its_traceback_is_in_the_log(daemon: Daemon, base: Path) -> None:
    run = call(daemon, base, "work_steps:fail", ["today"])
    assert (run_state(run), run.steps[0].exit_code) == ("FAILED", 1)
    assert error_class(run.steps[0]) == "RETRYABLE_TRANSIENT"
    assert run.steps[0].reason == "ValueError: not today"
    assert run.error_message == "step call failed: ValueError: not today"
    printed = daemon.log_of(run.id)[ERR].decode()
    assert printed.startswith("Traceback")
    assert "ValueError: not today" in printed
    assert "work_steps.py" in printed
    assert OUT not in daemon.log_of(run.id)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("no_such_module:main", "there is no module 'no_such_module'"),
        ("work_steps:absent", "absent"),
        ("work_steps:number", "it is not a function"),
    ],
)
def test_what_cannot_be_called_is_not_retryable(daemon: Daemon, base: Path, target: str, text: str) -> None:
    run = call(daemon, base, target)
    assert (run_state(run), error_class(run.steps[0])) == ("FAILED", "NON_RETRYABLE")
    printed = daemon.log_of(run.id)[ERR].decode()
    assert printed.startswith(f"cannot call {target}: ")
    assert run.steps[0].reason == printed.strip()
    assert text in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("broken_steps:main", "does_not_exist_anywhere"),
        ("raising_steps:main", "RuntimeError: while it was loaded"),
    ],
)
def test_a_module_that_cannot_be_loaded_shows_why(daemon: Daemon, base: Path, target: str, text: str) -> None:
    run = call(daemon, base, target)
    assert run_state(run) == "FAILED"
    printed = daemon.log_of(run.id)[ERR].decode()
    assert "Traceback" in printed
    assert text in printed


def test_a_result_that_cannot_be_kept_fails_the_step(daemon: Daemon, base: Path) -> None:
    for target, text in (("work_steps:strange", "not JSON"), ("work_steps:huge", "2000002 bytes")):
        run = call(daemon, base, target)
        assert run_state(run) == "FAILED"
        assert text in daemon.log_of(run.id)[ERR].decode()
        assert text in run.error_message


def test_the_message_of_a_failure_is_short_and_harmless(daemon: Daemon, base: Path) -> None:
    run = call(daemon, base, "work_steps:also_fail", ["so\n\x1b[31m" + "x" * 100_000])
    found = run.steps[0].reason
    assert found.startswith("ValueError: not so \\x1b[31mxxx")
    assert len(found) < 1100
    assert "characters left out" in found


def test_a_message_stays_with_a_result_that_is_stored_apart(daemon: Daemon, base: Path) -> None:
    run = call(daemon, base, "work_steps:big_failure")
    assert run.steps[0].reason == "only half of it: 日本"
    assert run.error_message == "step call failed: only half of it: 日本"


def test_every_report_of_a_failure_has_its_message(daemon: Daemon, base: Path) -> None:
    daemon.apply(
        """
name: py-listener
description: x
on:
  event: [STEP_FAILED, RUN_FAILED]
  condition: event.payload.workflow == 'py-letters'
steps: [{name: tell, run: "echo {{ event.payload.error }}"}]
"""
    )
    daemon.apply(
        """
name: py-letters
description: x
steps:
  - {name: shell, run: 'echo "toban.error=the feed is empty" >> "$TOBAN_OUTPUT"; exit 4', on_failure: continue}
  - name: call
    job_type: python
    target: work_steps:fail
    args: [rows 11]
    on_failure: retry
    max_retries: 1
    retry: {delay: 10ms}
    outputs: [{name: none, path: nothing-here.txt, optional: true}]
""",
        str(base),
    )
    run = daemon.run("py-letters")
    steps = steps_of(run)
    assert steps["call"].reason == "ValueError: not rows 11"
    assert steps["call"].attempts == 2
    assert steps["shell"].reason == "the feed is empty"
    assert run.error_message == "step call failed: ValueError: not rows 11"
    attempts = daemon.processes(run.id)
    letters = daemon.dead_letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest(), timeout=20).dead_letters
    assert [each.error_message for each in letters if each.run_id == run.id] == ["ValueError: not rows 11"]
    assert {each.error_message for each in attempts} == {"ValueError: not rows 11", "the feed is empty"}

    def emitted() -> list[str]:
        wanted = event_pb2.ListEventsRequest(types=["STEP_FAILED", "RUN_FAILED"])
        events = daemon.events.ListEvents(wanted, timeout=20).events
        return sorted(json.loads(each.payload_json)["error"] for each in events if each.source_run == run.id)

    own = ["ValueError: not rows 11", "step call failed: ValueError: not rows 11", "the feed is empty"]
    wait_until(lambda: emitted() == own, "the events were not emitted")


def test_sys_exit_is_the_exit_code(daemon: Daemon, base: Path) -> None:
    run = call(daemon, base, "work_steps:leave", [13])
    assert (run_state(run), run.steps[0].exit_code) == ("FAILED", 13)


def test_a_python_step_sees_what_any_step_sees(daemon: Daemon, base: Path) -> None:
    found = result(call(daemon, base, "work_steps:surroundings"))
    assert found["cwd"] == str(base)
    assert found["argv"] == ["work_steps:surroundings"]
    assert "TOBAN_CALL" not in found["names"]
    assert "TOBAN_RUN_ID" in found["names"]


def test_results_are_there_for_later_steps(daemon: Daemon, base: Path) -> None:
    definition = """
name: py-chain
description: x
steps:
  - {name: make, job_type: python, target: "work_steps:echo", args: [7, "x y"]}
  - {name: use, run: "echo {{ steps.make.result.args[1] }} {{ steps.make.result.args[0] + 1 }}"}
  - {name: pass, job_type: python, target: "work_steps:echo", kwargs: {of: "{{ steps.make.result }}"}}
"""
    daemon.apply(definition, str(base))
    run = daemon.run("py-chain")
    assert set(step_states(run).values()) == {"SUCCEEDED"}
    assert daemon.log_of(run.id, "use") == {OUT: b"x y 8\n"}
    passed = json.loads(steps_of(run)["pass"].result_json)["kwargs"]["of"]
    assert passed["args"] == [7, "x y"]
