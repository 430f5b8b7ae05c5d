"""Shell steps through the daemon: their shell, `set -e`, their args, and versions from before these rules."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, run_state, running_daemon
from helpers.wait import wait_until
from toban.v1 import run_pb2, workflow_pb2

STDOUT = run_pb2.LOG_STREAM_STDOUT
NUMBERS = itertools.count(1)
BASH = shutil.which("bash") or ""
needs_bash = pytest.mark.skipif(not BASH, reason="there is no bash")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running


def apply(daemon: Daemon, step: dict[str, Any], **fields: Any) -> str:
    """Stores a workflow with one step, and returns its name."""
    document = {"name": f"demo-{next(NUMBERS)}", "description": "d", **fields, "steps": {"only": step}}
    return daemon.apply(json.dumps(document)).name


def result(daemon: Daemon, name: str, **params: Any) -> tuple[str, bytes]:
    run = daemon.run(name, **params)
    return run_state(run), daemon.log_of(run.id).get(STDOUT, b"")


def refusal(daemon: Daemon, step: dict[str, Any], **fields: Any) -> str:
    source = json.dumps({"name": "wrong", "description": "d", **fields, "steps": {"only": step}})
    request = workflow_pb2.ValidateWorkflowRequest(definition=workflow_pb2.Definition(source=source))
    answer = daemon.workflows.ValidateWorkflow(request, timeout=20)
    assert not answer.valid
    (problem,) = answer.problems
    return str(problem.message)


GOES_ON = "false\necho after"
PIPE = "false | true\necho after"


@pytest.mark.parametrize(
    ("step", "defaults", "expected"),
    [
        ({"run": GOES_ON}, {}, ("FAILED", b"")),
        ({"run": GOES_ON, "errexit": False}, {}, ("SUCCEEDED", b"after\n")),
        ({"run": GOES_ON}, {"errexit": False}, ("SUCCEEDED", b"after\n")),
        ({"run": PIPE}, {}, ("SUCCEEDED", b"after\n")),
        pytest.param({"run": PIPE, "shell": "bash"}, {}, ("FAILED", b""), marks=needs_bash),
        pytest.param({"run": PIPE}, {"shell": BASH}, ("FAILED", b""), marks=needs_bash),
        pytest.param({"run": PIPE, "shell": "bash", "errexit": False}, {}, ("SUCCEEDED", b"after\n"), marks=needs_bash),
        pytest.param({"run": "#!/bin/bash\necho $0", "shell": "bash"}, {}, ("SUCCEEDED", b"bash\n"), marks=needs_bash),
        ({"run": "#!/usr/bin/env sh\necho $0"}, {}, ("SUCCEEDED", b"sh\n")),
        ({"job_type": "shell", "target": "echo", "args": ["a", "b  $(c)"]}, {}, ("SUCCEEDED", b"a b  $(c)\n")),
        ({"run": 'echo "$2"; echo "$1"', "args": ["a", "b"]}, {}, ("SUCCEEDED", b"b\na\n")),
        ({"run": "cat - <<E\nin\nE\n", "args": ["/dev/null"]}, {}, ("SUCCEEDED", b"in\n")),
    ],
)
def test_how_a_script_runs(
    daemon: Daemon, step: dict[str, Any], defaults: dict[str, Any], expected: tuple[str, bytes]
) -> None:
    name = apply(daemon, step, defaults=defaults)
    assert result(daemon, name) == expected


@pytest.mark.parametrize("shell", ["sh", pytest.param("bash", marks=needs_bash)])
@pytest.mark.parametrize("value", ["$(touch X)", "`touch X`", "; touch X", "a\ntouch X", "%VAR%", "$env:X", "'\""])
def test_a_hostile_value_arrives_as_text(daemon: Daemon, shell: str, value: str) -> None:
    script = "printf '%s|' {{ params.x }} a{{ params.x }}; cat <<E\n{{ params.x }}\nE\nls"
    name = apply(daemon, {"run": script, "shell": shell}, params={"x": {"required": True}})
    assert result(daemon, name, x=value) == ("SUCCEEDED", f"{value}|a{value}|{value}\n".encode())


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            {"run": "#!/bin/bash\necho"},
            'starts with #!/bin/bash, but the step runs it with sh: write "shell: bash"',
        ),
        ({"run": "#!/usr/bin/env python3\nprint()"}, "save the script as a file"),
        ({"run": "a; b", "args": ["x"]}, "the script never uses its args: write $1"),
        ({"run": "a", "shell": "fish"}, "expected sh, bash or an absolute path"),
        ({"run": "a", "shell": "/usr/bin/fish"}, '"fish" is no POSIX shell'),
        ({"run": "a", "shell": "bash -x"}, "write bash without options"),
        ({"job_type": "exec", "target": "a", "shell": "bash"}, 'only shell steps have "shell"'),
    ],
)
def test_what_is_refused(daemon: Daemon, step: dict[str, Any], message: str) -> None:
    assert message in refusal(daemon, step)


@pytest.mark.parametrize(
    "command",
    [
        *(["sh", "-c", "echo {{ params.x }}"], ["bash", "-ec", "{{ params.x }}"], ["python3", "-c", "{{ params.x }}"]),
        *(["perl", "-e", "{{ params.x }}"], ["node", "--eval={{ params.x }}"], ["ssh", "host", "ls", "{{ params.x }}"]),
        *(["env", "sh", "-c", "{{ params.x }}"], ["env", "-S", "{{ params.x }}"], ["cmd", "/c", "echo {{ params.x }}"]),
        *(["powershell", "-Command", "echo {{ params.x }}"], ["awk", "{{ params.x }}"], ["watch", "{{ params.x }}"]),
    ],
    ids=" ".join,
)
def test_a_template_in_the_code_of_an_interpreter_is_refused(daemon: Daemon, command: list[str]) -> None:
    """In the args of an exec step, in a script, and in the args of a script that is one command."""
    program, *rest = command
    script = " ".join([program, *(f"'{word}'" if word.startswith("echo") else word for word in rest)])
    params = {"x": {"default": "1"}}
    for step in (
        {"job_type": "exec", "target": program, "args": rest},
        {"job_type": "shell", "target": program, "args": rest},
        {"run": script},
    ):
        message = refusal(daemon, step, params=params)
        assert f"{program.removesuffix('3')} parses this argument as code" in message or "sh parses" in message, message
        assert "{{ raw(…) }}" in message


def test_a_raw_template_may_be_code(daemon: Daemon) -> None:
    step = {"job_type": "exec", "target": "sh", "args": ["-c", "echo {{ raw(params.x) }}"]}
    name = apply(daemon, step, params={"x": {"required": True}})
    assert result(daemon, name, x="$((1 + 1))") == ("SUCCEEDED", b"2\n")


@needs_bash
def test_the_shell_of_the_configuration_is_stored_with_the_version(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s", environment={"TOBAN_SHELL": "bash"}) as daemon:
        assert "runs it with bash" in refusal(daemon, {"run": "#!/bin/sh\necho"})
        name = apply(daemon, {"run": PIPE})
        assert result(daemon, name) == ("FAILED", b"")
        daemon.kill()
        daemon.start(environment={"TOBAN_SHELL": "sh"})
        assert result(daemon, name) == ("FAILED", b"")


def test_a_version_from_before_keeps_its_meaning_until_its_text_changes(tmp_path: Path) -> None:
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    text = "name: filed\ndescription: d\nsteps: {only: {run: 'false; echo after'}}\n"
    (definitions / "filed.yaml").write_text(text)
    environment = {"TOBAN_DEFINITIONS": str(definitions)}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        wait_until(lambda: version_of(daemon, "filed") == 1, "the file is read")
        names = (apply(daemon, {"run": GOES_ON}), "filed")
        assert [result(daemon, name)[0] for name in names] == ["FAILED", "FAILED"]
        daemon.kill()
        forget_edition(tmp_path / "s" / "toban.db")
        # Another release reads the files again.
        (tmp_path / "s" / "definition-files.jsonl").unlink(missing_ok=True)
        daemon.start(environment=environment)
        assert [result(daemon, name) for name in names] == [("SUCCEEDED", b"after\n")] * 2
        assert version_of(daemon, "filed") == 1
        (definitions / "filed.yaml").write_text(f"{text}# now\n")
        wait_until(lambda: version_of(daemon, "filed") == 2, "the changed file is read")
        assert result(daemon, "filed") == ("FAILED", b"")


def version_of(daemon: Daemon, name: str) -> int:
    request = workflow_pb2.ListWorkflowsRequest(page_size=1000)
    found = {each.name: each.version for each in daemon.workflows.ListWorkflows(request, timeout=20).workflows}
    return found.get(name, 0)


def forget_edition(database: Path) -> None:
    """Versions as a release without editions stored them."""
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT workflow, version, parsed FROM workflow_versions").fetchall()
    for workflow, version, parsed in rows:
        old = json.loads(parsed)
        assert old.pop("edition") == 1
        values = (json.dumps(old), workflow, version)
        connection.execute("UPDATE workflow_versions SET parsed = ? WHERE workflow = ? AND version = ?", values)
    connection.commit()
    connection.close()
