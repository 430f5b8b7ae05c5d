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
from toband.supervise.launch.end_record import parse_outputs

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
        self.directory = directory
        (directory / "steps.py").write_text(MODULE)
        (directory / "raising.py").write_text(f"{MODULE}\nraise Limited('while it was loaded')\n")
        (directory / "params.json").write_text('{"day": "today"}')

    def __call__(self, target: str, *args: object, **kwargs: object) -> Done:
        result, output = self.directory / "result", self.directory / "out"
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
    }
    assert call("steps:fatal").outputs == {"toban.error_class": "FATAL"}
    assert call("raising:plain").outputs["toban.error_class"] == "RETRYABLE_RATE_LIMIT"
    common = call("steps:common")
    assert (common.code, common.outputs) == (1, {})
