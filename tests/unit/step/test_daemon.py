"""Calls of steps to the daemon: with the SDK if it is installed, else with the daemon's own command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import toban.step
from doubles.daemon.fake_daemon import FakeDaemon
from toban.cli.command_line import main
from toban.step import step_context
from toban.v1 import event_pb2, schedule_pb2

CLI = [sys.executable, "-E", "-P", "-X", "utf8", "-m", "toban.cli"]


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(tmp_path_factory.mktemp("d") / "toban.sock")
    daemon.start()
    yield daemon
    daemon.close()


@pytest.fixture
def step(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> step_context.Context:
    monkeypatch.setenv("TOBAN_SERVER", daemon.address)
    monkeypatch.setenv("TOBAN_RUN_ID", "r")
    monkeypatch.setenv("TOBAN_ATTEMPT_TOKEN", "t")
    monkeypatch.delenv("TOBAN_CLI", raising=False)
    return step_context.Context()


@pytest.fixture
def without_sdk(step: step_context.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an interpreter that has no Toban."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(step_context, "importlib", SimpleNamespace(import_module=absent))
    monkeypatch.setenv("TOBAN_CLI", json.dumps(CLI))


@pytest.fixture
def in_this_process(
    without_sdk: None,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The command line, without the time that it takes to start it."""

    def run(argv: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
        assert argv[: len(CLI)] == CLI
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(how["input"])))
        capsysbinary.readouterr()
        code = main(argv[len(CLI) :])
        captured = capsysbinary.readouterr()
        return subprocess.CompletedProcess(argv, int(code), captured.out, captured.err)

    program = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(step_context, "subprocess", program)


def test_a_step_emits(daemon: FakeDaemon, step: step_context.Context) -> None:
    first = step.emit("DATA_CHANGED", {"entity": "課題", "pair": (1, 2)}, dedupe_key="k")
    assert step.emit("DATA_CHANGED", dedupe_key="k") == first
    toban.step.emit("OTHER")
    told, other = daemon.events
    assert (told.id, told.type) == (first, "DATA_CHANGED")
    assert json.loads(told.payload_json) == {"entity": "課題", "pair": [1, 2]}
    assert (told.source, told.source_run) == (event_pb2.EVENT_SOURCE_STEP, "r")
    assert (other.type, other.payload_json) == ("OTHER", "{}")


@pytest.mark.usefixtures("without_sdk")
def test_a_step_emits_without_the_sdk(daemon: FakeDaemon, step: step_context.Context) -> None:
    told = step.emit("-DATA", {"entity": "課題"}, dedupe_key="--k")
    (event,) = daemon.events
    assert (event.id, event.type, event.dedupe_key) == (told, "-DATA", "--k")
    assert json.loads(event.payload_json) == {"entity": "課題"}
    assert (event.source, event.source_run) == (event_pb2.EVENT_SOURCE_STEP, "r")


def test_an_older_sdk_is_not_used(
    daemon: FakeDaemon, step: step_context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Old:
        class SyncClient:
            pass

    monkeypatch.setitem(sys.modules, "toban.sdk", Old)
    with pytest.raises(step_context.DaemonError, match=r"no toban\.sdk, and \$TOBAN_CLI names no"):
        step.emit("A")
    monkeypatch.setenv("TOBAN_CLI", "[]]")
    with pytest.raises(step_context.DaemonError, match="install toban for it"):
        step.emit("A")


def schedules_of(daemon: FakeDaemon, step: step_context.Context) -> dict[str, Any]:
    """All that a step does with them; the schedule that it made."""
    daemon.understood.due_times.add().FromJsonString("2099-01-01T00:00:00Z")
    made = step.scheduler.schedule(
        "issue-42",
        "3日後の朝9時にリマインド",
        "reminder",
        timezone="Asia/Tokyo",
        dedupe_key="k",
        max_occurrences=7,
    )
    (stored,) = daemon.schedules.values()
    assert stored.action == schedule_pb2.SCHEDULE_ACTION_REMINDER
    assert step.scheduler.list_by_issue("issue-42") == [made]
    assert step.scheduler.list_by_subject("other") == []
    assert step.scheduler.cancel(made["id"]) is True
    assert step.scheduler.cancel_by_issue("issue-42") == 0
    again = step.scheduler.schedule("other", "tomorrow", "follow-up")
    assert daemon.schedules.pop(again["id"]).action == schedule_pb2.SCHEDULE_ACTION_FOLLOW_UP
    return made


def expected(daemon: FakeDaemon) -> dict[str, Any]:
    (stored,) = daemon.schedules.values()
    return {
        "id": stored.id,
        "subject": "issue-42",
        "action": "reminder",
        "workflow": "",
        "request": "3日後の朝9時にリマインド",
        "understood": daemon.understood.understood,
        "timezone": "Asia/Tokyo",
        "state": "active",
        "next_due": "2099-01-01T00:00:00Z",
        "occurrences": 0,
        "max_occurrences": 7,
        "dedupe_key": "k",
    }


def test_schedules_of_a_subject(daemon: FakeDaemon, step: step_context.Context) -> None:
    assert schedules_of(daemon, step) == expected(daemon)
    daemon.schedules.clear()
    made = step.scheduler.schedule("issue-42", "tomorrow", workflow="w")
    assert made["workflow"] == "w"
    assert step.scheduler.cancel_by_subject("issue-42") == 1
    daemon.schedules[made["id"]].state = schedule_pb2.SCHEDULE_STATE_ENDED
    assert step.scheduler.cancel(made["id"]) is False


@pytest.mark.usefixtures("in_this_process")
def test_schedules_without_the_sdk(daemon: FakeDaemon, step: step_context.Context) -> None:
    assert schedules_of(daemon, step) == expected(daemon)


def test_what_is_refused_is_not_tried_again(daemon: FakeDaemon, step: step_context.Context) -> None:
    with pytest.raises(step_context.DaemonError, match="NONSENSE") as caught:
        step.scheduler.schedule("s", "NONSENSE", "reminder")
    assert caught.value.toban_error_class == "NON_RETRYABLE"


@pytest.mark.usefixtures("in_this_process")
def test_a_refusal_of_the_command_line(daemon: FakeDaemon, step: step_context.Context) -> None:
    with pytest.raises(step_context.DaemonError, match="NONSENSE") as caught:
        step.scheduler.schedule("s", "NONSENSE", "reminder")
    assert caught.value.toban_error_class == "NON_RETRYABLE"


@pytest.mark.usefixtures("without_sdk")
def test_a_command_line_that_cannot_be_run(
    step: step_context.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOBAN_CLI", json.dumps([str(tmp_path / "absent")]))
    with pytest.raises(step_context.DaemonError, match=r"cannot run .*absent"):
        step.emit("A")
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 3\n")
    os.chmod(silent, 0o700)
    monkeypatch.setenv("TOBAN_CLI", json.dumps([str(silent)]))
    with pytest.raises(step_context.DaemonError, match="exited with 3") as caught:
        step.emit("A")
    assert caught.value.toban_error_class == "RETRYABLE_TRANSIENT"


@pytest.mark.parametrize("payload", [object(), float("nan"), "\udcff"])
def test_payloads_that_are_no_json(daemon: FakeDaemon, step: step_context.Context, payload: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        step.emit("A", payload)
    assert daemon.events == []


def test_outside_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_SERVER", raising=False)
    with pytest.raises(toban.step.NotInAStepError, match="TOBAN_SERVER"):
        toban.step.emit("A")
    with pytest.raises(toban.step.NotInAStepError):
        toban.step.Scheduler().cancel_by_subject("s")
