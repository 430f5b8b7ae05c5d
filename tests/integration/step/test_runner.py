"""The runner of python steps, in every interpreter that is here, none of which has Toban."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import toban.step
from toban.definition import NO_EVENT
from toband.supervise.launch.step_outputs import parse_outputs

RUNNER = Path(toban.step.__file__).with_name("runner.py")

MODULE = """
def plain(a, b=2):
    return [a, b]

def told(context, n=1):
    context.output("seen", context.metadata["step"])
    context.progress(1, 2, "half")
    return {"params": context.params, "n": n, "inputs": sorted(context.inputs)}

def named(n, *, context=None):
    return [n, type(context).__name__]

def executor(event, context, emitter):
    return [event.type, event["payload"], event.depth, bool(event), type(emitter).__name__, event == context.event]

async def chosen(n, event="click", *, emitter=None, context=None):
    return [n, event, type(emitter).__name__]

def optional(event=None):
    return event

class WorkflowResult(Exception):
    def __init__(self, success, output=None, error=None):
        self.success, self.output, self.error = success, output, error

def returned(success, output=None, error=None):
    return WorkflowResult(success, output, error)

async def raised():
    def deep():
        raise WorkflowResult(False, {"rows": 3}, Limited("too many"))
    deep()

def raised_before():
    try:
        common()
    except ValueError as error:
        return WorkflowResult(False, error=error)

def lines():
    raise KeyError("one\\ntwo\\x1b[31m\\ud800" + "x" * 9000)

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError

def unprintable():
    raise Unprintable

def huge():
    return "x" * 1_100_000

def leave(code):
    import sys
    sys.exit(code)

def behind(*args, **kwargs):
    return [list(args), kwargs]

class Own:
    def __call__(self, context):
        return context.metadata["run_id"]

    @staticmethod
    async def later(context):
        return context.config

own = Own()

class Limited(Exception):
    toban_error_class = "RETRYABLE_RATE_LIMIT"
    retry_after = 90

def limited(context):
    context.output("before", "1")
    raise Limited("not now")

async def fatal():
    class Fatal(Exception):
        toban_error_class = "FATAL"
    raise Fatal("over")

def common():
    raise ValueError("x")
"""


def interpreters() -> list[str]:
    """This one, and an old one and the system's where there are any."""
    found: dict[str, str] = {}
    for name in (sys.executable, "/usr/bin/python3", "python3.8"):
        path = shutil.which(name)
        if path is None:
            continue
        script = "import sys; print(sys.version_info[:2] >= (3, 8) and sys.version)"
        tried = subprocess.run([path, "-I", "-c", script], capture_output=True, text=True)
        if tried.returncode == 0 and tried.stdout.strip() != "False":
            found.setdefault(tried.stdout, path)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    result: Any
    outputs: dict[str, str]
    stdout: str
    stderr: str


class Caller:
    def __init__(self, interpreter: str, directory: Path) -> None:
        self.interpreter = interpreter
        self.event: dict[str, Any] | None = None
        self.directory = directory
        (directory / "steps.py").write_text(MODULE)
        (directory / "raising.py").write_text(f"{MODULE}\nraise Limited('while it was loaded')\n")
        (directory / "params.json").write_text('{"day": "today"}')

    def __call__(self, target: str, *args: object, **kwargs: object) -> Done:
        result, output = self.directory / "result", self.directory / "out"
        result.unlink(missing_ok=True)
        output.write_text("left=unended")
        environment = {
            "PATH": os.environ["PATH"],
            "TOBAN_CALL": json.dumps({"target": target, "args": args, "kwargs": kwargs}),
            "TOBAN_RESULT": str(result),
            "TOBAN_OUTPUT": str(output),
            "TOBAN_PARAMS": str(self.directory / "params.json"),
            "TOBAN_RUN_ID": "r",
            "TOBAN_WORKFLOW": "w",
            "TOBAN_STEP": "call",
            "TOBAN_INPUTS": '{"raw": "raw"}',
        }
        if self.event is not None:
            path = self.directory / "event.json"
            path.write_text(json.dumps(self.event), "utf-8")
            environment["TOBAN_EVENT"] = str(path)
        # Not with -I: a step may import what lies beside it.
        done = subprocess.run(
            [self.interpreter, "-u", "-S", str(RUNNER)],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        found = json.loads(result.read_text("utf-8")) if result.exists() else None
        handed_on = parse_outputs(output.read_text("utf-8"))
        assert handed_on.pop("left") == "unended"
        return Done(done.returncode, found, handed_on, done.stdout, done.stderr)


@pytest.fixture(params=interpreters(), ids=lambda path: Path(path).name)
def call(request: pytest.FixtureRequest, tmp_path: Path) -> Caller:
    return Caller(request.param, tmp_path)


def test_a_context_is_given_to_whoever_has_a_parameter_for_it(call: Caller) -> None:
    done = call("steps:told", n=4)
    assert done.code == 0, done.stderr
    assert done.result == {"params": {"day": "today"}, "n": 4, "inputs": ["raw"]}
    assert done.outputs == {"seen": "call"}
    assert done.stdout == "::progress 1/2 half\n"
    assert call("steps:named", 7).result == [7, "Context"]
    assert call("steps:own").result == "r"
    assert call("steps:Own.later").result == {"day": "today"}


def test_nobody_else_gets_one(call: Caller) -> None:
    assert call("steps:plain", 1).result == [1, 2]
    assert call("steps:behind", 1, x=2).result == [[1], {"x": 2}]
    # Or who was given another thing by that name.
    assert call("steps:named", 7, context="mine").result == [7, "str"]
    assert call("builtins:len", "abc").result == 3
    assert "missing 1 required positional argument" in call("steps:plain").stderr


def test_an_exception_says_how_it_is_to_be_treated(call: Caller) -> None:
    done = call("steps:limited")
    assert done.code == 1
    assert "Limited: not now" in done.stderr
    assert done.outputs == {
        "before": "1",
        "toban.error_class": "RETRYABLE_RATE_LIMIT",
        "toban.retry_after": "90s",
        "toban.error": "Limited: not now",
    }
    assert call("steps:fatal").outputs == {"toban.error_class": "FATAL", "toban.error": "Fatal: over"}
    assert call("raising:plain").outputs["toban.error_class"] == "RETRYABLE_RATE_LIMIT"
    common = call("steps:common")
    assert (common.code, common.outputs) == (1, {"toban.error": "ValueError: x"})


def test_a_failure_says_why_in_one_message(call: Caller) -> None:
    for target, arguments, code, text in (
        ("steps:plain", (), 1, "TypeError: plain() missing 1 required positional argument: 'a'"),
        ("steps:unprintable", (), 1, "Unprintable"),
        ("steps:leave", ["the disk is full"], 1, "the disk is full"),
        ("steps:absent", (), 78, "cannot call steps:absent: module 'steps' has no attribute 'absent'"),
        ("absent:main", (), 78, "cannot call absent:main: there is no module 'absent'"),
        ("steps:huge", (), 1, "cannot store what steps:huge returned: 1100002 bytes, at most 1048576 are kept"),
    ):
        done = call(target, *arguments)
        assert (done.code, done.outputs["toban.error"][: len(text)]) == (code, text)
        assert text in done.stderr
    long = call("steps:lines").outputs["toban.error"]
    assert long.startswith("KeyError: ")
    assert len(long) <= 4010
    assert call("steps:leave", 3).outputs == {}


def test_an_executor_gets_event_context_and_emitter(call: Caller) -> None:
    assert call("steps:executor").result == ["", {}, 0, False, "Emitter", True]
    assert call("steps:optional").result is None
    assert call("steps:chosen", 1).result == [1, "click", "Emitter"]
    assert call("steps:chosen", 1, "mine", emitter="own").result == [1, "mine", "str"]
    call.event = {"type": "T", "payload": {"日": [1]}, "depth": 2}
    assert call("steps:executor").result == ["T", {"日": [1]}, 2, True, "Emitter", True]
    assert call("steps:executor", event={"type": "given"}).code == 1
    assert call("steps:optional").result == {**NO_EVENT, **call.event}
    assert call("steps:optional", event={"type": "given"}).result == {"type": "given"}


def test_a_workflow_result_is_returned_or_raised(call: Caller) -> None:
    done = call("steps:returned", True, [1])
    assert (done.code, done.result, done.outputs) == (0, [1], {})
    assert call("steps:returned", True).result is None
    done = call("steps:returned", False, {"left": 2}, "bad input")
    assert (done.code, done.result, done.outputs) == (1, {"left": 2}, {"toban.error": "bad input"})
    assert done.stderr == "bad input\n"
    done = call("steps:raised")
    assert (done.code, done.result) == (1, {"rows": 3})
    assert done.outputs["toban.error"] == "Limited: too many"
    assert done.outputs["toban.error_class"] == "RETRYABLE_RATE_LIMIT"
    assert "Traceback" not in done.stderr
    done = call("steps:raised_before")
    assert done.outputs == {"toban.error": "ValueError: x"}
    assert 'raise ValueError("x")' in done.stderr
    assert "runner.py" not in done.stderr
    assert "without an error" in call("steps:returned", False).outputs["toban.error"]
