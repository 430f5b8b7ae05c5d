from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon
from toban.v1 import run_pb2, schedule_pb2

from .conftest import Cli

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(daemon: FakeDaemon, bare: Cli, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What bash would be offered for a command line."""
    daemon.add_workflow("nightly")
    daemon.add_workflow("weekly")
    daemon.add_run("nightly")
    monkeypatch.setenv("TOBAN_SERVER", daemon.address)
    # Whoever types does not wait for a machine that is busy; a test does.
    monkeypatch.setattr("toban.cli.args.completers._TIMEOUT", DEADLINE)

    def run(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_TOBAN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        result = bare()
        assert (result.code, result.err) == (0, "")
        return result.out.split()

    return run


def test_verbs_and_names(complete: Complete, daemon: FakeDaemon) -> None:
    assert complete("toban ru") == ["run", "runs"]
    assert complete("toban runs sh") == ["show"]
    assert complete("toban run ") == ["nightly", "weekly"]
    assert complete("toban workflows show wee") == ["weekly"]
    assert complete("toban runs list --workflow n") == ["nightly"]
    assert complete("toban logs nightly#") == ["nightly#1"]
    (run_id,) = daemon.runs
    assert complete(f"toban runs show {run_id[:6]}") == [run_id]


def test_names_of_the_other_things(complete: Complete, daemon: FakeDaemon) -> None:
    daemon.add_job("upload")
    (record,) = daemon.runs.values()
    letter = daemon.add_letter(record, "one", "exit code 1")
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING, waiting_for=run_pb2.WAITING_FOR_APPROVAL)
    parsed = '{"steps": [{"id": "fetch"}, {"id": "build"}], "scopes": {"publish": ["build"]}}'
    daemon.workflows["weekly"].definition.parsed_json = parsed
    assert complete("toban jobs run ") == ["upload"]
    assert complete("toban dead-letters requeue ") == [letter.id]
    assert complete("toban run weekly --from ") == ["fetch", "build"]
    assert complete("toban run weekly --scope p") == ["publish"]
    assert complete("toban runs retry nightly --from ") == complete("toban retry nightly --from ") == ["one"]
    assert complete("toban runs retry --from ") == []
    assert complete("toban runs approve nightly ") == ["one"]
    assert complete("toban runs approve nothing ") == []


def test_names_of_events_and_schedules(complete: Complete, daemon: FakeDaemon) -> None:
    event = daemon.add_event("ORDER_PAID")
    daemon.add_job("upload")
    schedule = daemon.schedules["s-1"] = schedule_pb2.Schedule(
        id="s-1", subject="issue-42", state=schedule_pb2.SCHEDULE_STATE_ACTIVE
    )
    assert complete("toban emit O") == ["ORDER_PAID"]
    assert complete("toban events list --type RUN") == ["RUN_FAILED", "RUN_SUCCEEDED"]
    assert complete("toban events show ") == [event.id]
    assert complete("toban schedule --action f") == ["follow_up"]
    assert complete("toban schedule --workflow ") == ["nightly", "weekly", "upload"]
    assert complete("toban schedules list --subject i") == [schedule.subject]
    assert complete("toban schedules cancel ") == ["s-1"]


def test_without_a_daemon_there_is_nothing_to_offer(complete: Complete, daemon: FakeDaemon) -> None:
    daemon.stop()
    assert complete("toban run ") == []
    assert complete("toban logs n") == []


def test_names_of_contexts_need_no_daemon(complete: Complete, daemon: FakeDaemon, bare: Cli) -> None:
    bare("context", "add", "prod", "--server", "127.0.0.1:1")
    bare("context", "add", "local", "--server", daemon.address)
    assert complete("toban context use ") == ["prod", "local"]
    assert complete("toban --context p") == ["prod"]
    assert complete("toban runs list --context=p") == ["--context=prod"]


def test_the_names_are_those_of_the_context(
    complete: Complete, daemon: FakeDaemon, bare: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOBAN_SERVER")
    bare("context", "add", "local", "--server", daemon.address)
    assert complete("toban run ") == []
    assert complete("toban --context local run ") == ["nightly", "weekly"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(bare: Cli, shell: str) -> None:
    result = bare("completion", shell)
    assert result.code == 0
    assert "_TOBAN_COMPLETE=complete_" in result.out
    assert bare("completion", "tcsh").code == 2


@pytest.fixture
def toban(daemon: FakeDaemon, tmp_path: Path) -> Path:
    """A directory with the program, for a real shell. The daemon has the workflows nightly and noon."""
    daemon.add_workflow("nightly")
    daemon.add_workflow("noon")
    program = (
        "import sys; from toban.cli import main; from toban.cli.args import completers; "
        f"completers._TIMEOUT = {DEADLINE}; sys.exit(main())"
    )
    path = tmp_path / "toban"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n')
    path.chmod(0o755)
    (tmp_path / "noted.yaml").touch()
    return tmp_path


def in_shell(daemon: FakeDaemon, toban: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        env={"TOBAN_SERVER": daemon.address, "PATH": f"{toban}:/usr/bin:/bin", "TERM": "dumb", "HOME": str(toban)},
        cwd=toban,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_a_real_bash(daemon: FakeDaemon, toban: Path) -> None:
    script = """
        eval "$(toban completion bash)"
        COMP_WORDS=(toban run n) COMP_CWORD=2
        _toban_completion toban
        echo "${COMPREPLY[@]}"
    """
    assert in_shell(daemon, toban, "bash", "--norc", "-c", script) == "nightly noon\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_in_a_real_fish(daemon: FakeDaemon, toban: Path) -> None:
    script = """
        toban completion fish | source
        complete -C 'toban run n'
        complete -C 'toban apply n'
        complete -C 'toban runs sh'
    """
    found = in_shell(daemon, toban, "fish", "--no-config", "-c", script).splitlines()
    # Files only where there are no names to offer.
    assert found[:3] == ["nightly", "noon", "noted.yaml"]
    assert found[3].startswith("show\t")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_in_a_real_zsh(daemon: FakeDaemon, toban: Path) -> None:
    script = """
        compdef() { :; }
        _describe() { print -rl -- ${(P)2}; }
        _files() { print files; }
        eval "$(toban completion zsh)"
        words=(toban run n) CURRENT=3; _toban_completion
        words=(toban apply n) CURRENT=3; _toban_completion
        words=(toban runs sh) CURRENT=3; _toban_completion
    """
    found = in_shell(daemon, toban, "zsh", "-f", "-c", script).splitlines()
    assert found[:3] == ["nightly", "noon", "files"]
    assert found[3].startswith("show:")
