"""Values of parameters are never code, whichever interpreter reads them: they arrive as text, or are refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, run_state, running_daemon
from toban.definition import parse
from toban.definition.scripts.code_arguments import INTERPRETERS
from toban.v1 import run_pb2

VALUES = (
    "$(touch X)",
    "`touch X`",
    "; touch X",
    "&& touch X",
    "| touch X",
    "a\ntouch X\n",
    "'; touch X; '",
    '"; touch X; "',
    "%VAR%",
    "$env:PATH",
    "${HOME}",
    "-e system('touch X')",
    "-ctouch X",
    "--eval=require('fs').writeFileSync('X', '')",
    "{{ params.value }}",
    "\\n\\x41",
    "*",
)
VALUE = "{{ params.value }}"
TO_STDIN = "import sys; sys.stdout.write(sys.argv[1])"
WRITE = "process.stdout.write(process.argv[1])"
# How each program may be given a value: the words of the command.
SAFE: dict[str, list[str]] = {
    "sh": ["sh", "-c", 'printf %s "$1"', "sh", VALUE],
    "bash": ["bash", "-c", 'printf %s "$1"', "bash", VALUE],
    "dash": ["dash", "-e", "-c", 'printf %s "$1"', "dash", VALUE],
    "env": ["env", "A=b", "printf", "%s", VALUE],
    "env of a shell": ["env", f"V={VALUE}", "sh", "-c", 'printf %s "$V"'],
    "python3": [sys.executable, "-c", TO_STDIN, VALUE],
    "perl": ["perl", "-e", "print $ARGV[0]", "--", VALUE],
    "node": ["node", "-e", WRITE, "--", VALUE],
    "awk": ["env", f"V={VALUE}", "awk", 'BEGIN { printf "%s", ENVIRON["V"] }'],
    "flock": ["flock", "lock", "printf", "%s", VALUE],
    "xargs": ["xargs", "-a", "/dev/null", "sh", "-c", 'printf %s "$1"', "sh", VALUE],
}
# Commands with a value in code, or where an option with code may be.
REFUSED: dict[str, list[list[str]]] = {
    **{
        shell: [[shell, "-c", VALUE], [shell, "-ec", f"echo {VALUE}", "x"]]
        for shell in ["sh", "bash", "dash", "ash", "ksh", "mksh", "pdksh", "yash", "zsh", "fish", "csh", "tcsh"]
    },
    **{python: [[python, "-c", f"print({VALUE})"]] for python in ("python", "pypy", "pythonw", "python3.12")},
    "perl": [["perl", "-e", f"print '{VALUE}'"], ["perl", "-e", "print $ARGV[0]", VALUE]],
    "ruby": [["ruby", "-e", f"puts '{VALUE}'"], ["ruby", "-e", "puts ARGV", VALUE]],
    **{
        node: [[node, "-e", f"f({VALUE})"], [node, f"--eval=f({VALUE})"], [node, "-e", WRITE, VALUE]]
        for node in ("node", "nodejs", "bun")
    },
    "php": [["php", "-r", f"echo {VALUE};"], ["php", "-r", "echo $argv[1];", VALUE]],
    "lua": [["lua", "-e", f"print({VALUE})"]],
    "rscript": [["Rscript", "-e", f"print({VALUE})"]],
    **{awk: [[awk, f"{{ print {VALUE} }}", "f"]] for awk in ("awk", "gawk", "mawk", "nawk")},
    "ssh": [["ssh", "host", "echo", VALUE], ["ssh", VALUE, "uptime"]],
    **{shell: [[shell, "-NoProfile", "-Command", f"echo {VALUE}"]] for shell in ("powershell", "pwsh")},
    "cmd": [["cmd", "/c", f"echo {VALUE}"]],
    "eval": [["eval", "echo", VALUE]],
    "watch": [["watch", f"echo {VALUE}"]],
    **{program: [[program, "-", "www", "-c", f"echo {VALUE}"]] for program in ("su", "runuser")},
    "flock": [["flock", "lock", "-c", f"echo {VALUE}"], ["flock", "lock", "bash", "-c", VALUE]],
    "script": [["script", "-q", "-c", f"echo {VALUE}", "log"]],
    "env": [["env", "-S", f"echo {VALUE}"], ["env", "-i", "sh", "-c", VALUE]],
}
WRAPPED = (["sudo", "-u", "www"], ["doas"], ["nohup"], ["timeout", "5"], ["docker", "exec", "web"], ["nice", "-n", "5"])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("values") / "state") as running:
        yield running


def definition(name: str, step: dict[str, Any]) -> str:
    params = {"value": {"type": "string", "required": True}}
    return json.dumps({"name": name, "description": "d", "params": params, "steps": [{"name": "only", **step}]})


def program(words: list[str]) -> dict[str, Any]:
    return {"job_type": "exec", "target": words[0], "args": words[1:]}


def quoted(word: str) -> str:
    """As a word of a script: a template is quoted by itself, other text is in single quotes."""
    before, template, _ = word.partition(VALUE)
    text = f"'{before}'" if before and not before.isidentifier() and not before.endswith("=") else before
    return text + template


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("kind", ["exec", "shell"])
def test_a_value_arrives_as_text(daemon: Daemon, tmp_path: Path, name: str, kind: str) -> None:
    words = SAFE[name]
    if any(shutil.which(word) is None for word in (words[0], name.split()[0])):
        pytest.skip(f"{name} is not installed")
    step = program(words) if kind == "exec" else {"run": " ".join(map(quoted, words))}
    workflow = f"{name.replace(' ', '-')}-{kind}"
    daemon.apply(definition(workflow, {**step, "workspace": str(tmp_path)}), base_dir=str(tmp_path))
    for value in VALUES:
        run = daemon.run(workflow, value=value)
        assert run_state(run) == "SUCCEEDED", (value, run.error_message)
        printed = daemon.log_of(run.id).get(run_pb2.LOG_STREAM_STDOUT, b"")
        assert printed.decode() == value
    assert {path.name for path in tmp_path.iterdir()} <= {"lock"}, "no value was executed"


def refusal(step: dict[str, Any]) -> str:
    found = parse(definition("a", step)).errors
    return found[0].message if found else ""


def test_every_interpreter_is_tried() -> None:
    assert {name.removesuffix("3.12") for name in REFUSED} == INTERPRETERS


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_in_code_is_refused(name: str) -> None:
    for words in REFUSED[name]:
        for wrapper in ([], *WRAPPED):
            message = refusal(program([*wrapper, *words]))
            assert "as code" in message or "which may be code" in message, [*wrapper, *words]
            # In a script the reader of shell syntax refuses a template within quotes as well.
            assert refusal({"run": " ".join(map(quoted, [*wrapper, *words]))}), [*wrapper, *words]
        assert not refusal(program([word.replace(VALUE, "constant") for word in words]))
