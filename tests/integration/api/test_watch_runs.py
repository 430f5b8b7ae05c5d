"""WatchRuns: the active runs, then each change of every run once and in order, from any position on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.sdk import SyncClient
from toban.v1 import run_pb2 as pb

WITHIN = 60.0
RUNNING, SUCCEEDED, FAILED = pb.RUN_STATE_RUNNING, pb.RUN_STATE_SUCCEEDED, pb.RUN_STATE_FAILED
CREATED = pb.RUN_CHANGE_KIND_CREATED

Change = tuple[str, int]
"""A run and the number of its change."""


def apply(daemon: Daemon, name: str, command: str = "true", **fields: Any) -> None:
    definition = {"name": name, "description": "for a test", **fields, "steps": {"only": {"run": command}}}
    daemon.apply(json.dumps(definition))


@pytest.fixture(scope="module")
def workflows(daemon: Daemon) -> None:
    apply(daemon, "watched")
    apply(daemon, "watched-fails", "exit 3", title="Fails")
    apply(daemon, "watched-stays", "exec sleep 600", overlap="allow")


def start(daemon: Daemon, workflow: str, labels: dict[str, str] | None = None) -> str:
    return daemon.runs.StartRun(pb.StartRunRequest(workflow=workflow, labels=labels or {}), timeout=WITHIN).run.id


class Watcher:
    """A stream, read one message after the other."""

    def __init__(self, daemon: Daemon, **wanted: Any) -> None:
        self._call = daemon.runs.WatchRuns(pb.WatchRunsRequest(**wanted), timeout=WITHIN)
        self._messages: Iterator[pb.WatchRunsResponse] = iter(self._call)
        self.position = wanted.get("position", "")

    def read(self) -> pb.WatchRunsResponse:
        message = next(self._messages)
        self.position = message.position
        return message

    def initial(self) -> list[pb.WatchRunsResponse]:
        found = []
        while (message := self.read()).HasField("run"):
            assert message.initial
            found.append(message)
        return found

    def until_end_of(self, run_id: str) -> list[pb.WatchRunsResponse]:
        found = []
        while True:
            message = self.read()
            assert not message.initial
            found.append(message)
            if message.run.id == run_id and message.run.HasField("finished_at"):
                return found

    def close(self) -> None:
        cast(Any, self._call).cancel()


def changes_of(found: list[pb.WatchRunsResponse]) -> list[Change]:
    return [(message.run.id, message.sequence) for message in found]


@pytest.mark.usefixtures("workflows")
def test_active_runs_come_first_and_then_each_change(daemon: Daemon) -> None:
    before = start(daemon, "watched-stays")
    daemon.wait_started(before, "only")
    watcher = Watcher(daemon)
    initial = watcher.initial()
    assert [(message.run.id, message.run.state) for message in initial] == [(before, RUNNING)]
    assert (
        initial[0].sequence == next(iter(daemon.runs.WatchRun(pb.WatchRunRequest(id=before), timeout=WITHIN))).sequence
    )
    run_id = start(daemon, "watched-fails")
    found = watcher.until_end_of(run_id)
    watcher.close()
    assert changes_of(found) == [(run_id, number) for number in range(len(found))]
    assert [found[0].change, found[0].run.state] == [CREATED, pb.RUN_STATE_PENDING]
    assert found[-1].run.state == FAILED
    assert found[-1].run.workflow_title == "Fails"
    assert "exit code 3" in found[-1].run.error_message
    assert not any(message.run.steps for message in found)
    whole = list(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id, after_sequence=1), timeout=WITHIN))
    assert [(m.sequence, m.change) for m in whole] == [(m.sequence, m.change) for m in found[2:]]
    daemon.cancel(before)
    daemon.wait_run(before)


@pytest.mark.usefixtures("workflows")
def test_every_position_continues_exactly_there(daemon: Daemon) -> None:
    active = [start(daemon, "watched-stays") for _ in range(3)]
    for run_id in active:
        daemon.wait_started(run_id, "only")
    watcher = Watcher(daemon)
    seen = watcher.initial()
    seen.append(pb.WatchRunsResponse(position=watcher.position))
    last = start(daemon, "watched")
    seen += watcher.until_end_of(last)
    watcher.close()
    expected = changes_of(seen)
    for number, message in enumerate(seen[:-1]):
        again = Watcher(daemon, position=message.position)
        rest = [again.read() for _ in seen[number + 1 :]]
        again.close()
        assert changes_of(rest) == expected[number + 1 :]
    for run_id in active:
        daemon.cancel(run_id)
        daemon.wait_run(run_id)


@pytest.mark.usefixtures("workflows")
def test_conditions_choose_runs_as_they_are_after_the_change(daemon: Daemon) -> None:
    def changes(count: int, **wanted: Any) -> list[tuple[str, int]]:
        """The first ones since the beginning."""
        watcher = Watcher(daemon, position=begin, **wanted)
        messages = [watcher.read() for _ in range(count)]
        watcher.close()
        return [(message.run.id, message.run.state) for message in messages]

    changed = Watcher(daemon, only_changes=True)
    begin = changed.read().position
    good = start(daemon, "watched", {"team": "data"})
    daemon.wait_run(good)
    bad = start(daemon, "watched-fails", {"team": "ops"})
    every: list[tuple[str, int]] = [(message.run.id, message.run.state) for message in changed.until_end_of(bad)]
    changed.close()
    mine = [each for each in every if each[0] == good]
    other = [each for each in every if each[0] == bad]
    late = daemon.get_run(bad)
    cases: list[tuple[dict[str, Any], list[tuple[str, int]]]] = [
        ({}, every),
        ({"workflow": "watched"}, mine),
        ({"states": [FAILED]}, [(bad, FAILED)]),
        ({"states": [SUCCEEDED, FAILED]}, [(good, SUCCEEDED), (bad, FAILED)]),
        ({"labels": {"team": "ops"}}, other),
        ({"text": "EXIT CODE 3"}, [(bad, FAILED)]),
        ({"text": "watched-fails#"}, other),
        ({"created_after": late.created_at}, other),
        ({"created_before": late.created_at}, mine),
        ({"workflow": "watched-fails", "number": late.number}, other),
        ({"ids": [bad]}, other),
    ]
    for wanted, expected in cases:
        assert changes(len(expected), **wanted) == expected
    created = late.created_at.ToDatetime(tzinfo=UTC)
    asked: list[tuple[dict[str, Any], str]] = [
        ({"created_after": created}, bad),
        ({"created_before": created}, good),
        ({"workflow": "watched-fails", "number": late.number, "ids": [good, bad]}, bad),
    ]
    with SyncClient(daemon.socket) as client:
        for conditions, first in asked:
            assert next(client.watch_runs(position=begin, **conditions)).run.id == first
    refusal = refused(lambda: Watcher(daemon, number=1).read())
    assert [field for field, _ in refusal.violations] == ["number"]


@pytest.mark.parametrize("position", ["nonsense", "MQ=", "LTE", "OTk5OTk5OTk5OTk5"])
def test_a_position_of_something_else_is_refused(daemon: Daemon, position: str) -> None:
    refusal = refused(lambda: Watcher(daemon, position=position).read())
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_reader_that_takes_nothing_misses_nothing(daemon: Daemon) -> None:
    """Its messages are read from the database when it takes them."""
    apply(daemon, "watched-often", overlap="allow")
    watcher = Watcher(daemon, workflow="watched-often")
    assert watcher.initial() == []
    run_ids = [start(daemon, "watched-often") for _ in range(60)]
    for run_id in run_ids:
        daemon.wait_run(run_id)
    found: list[Change] = []
    ended: set[str] = set()
    while len(ended) < len(run_ids):
        message = watcher.read()
        found.append((message.run.id, message.sequence))
        if message.run.HasField("finished_at"):
            ended.add(message.run.id)
    watcher.close()
    assert len(found) == len(set(found))
    for run_id in run_ids:
        numbers = [number for each, number in found if each == run_id]
        assert numbers == list(range(len(numbers)))


def test_nothing_is_lost_or_repeated_when_the_daemon_is_killed(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "state") as daemon:
        apply(daemon, "killed", "sleep 0.1", overlap="allow")
        with SyncClient(daemon.socket, retry_for=WITHIN) as client:
            found: list[Change] = []
            over: set[str] = set()
            last = threading.Event()
            stream = client.watch_runs(workflow="killed")
            assert not next(stream).HasField("run"), "no run is active"

            def watch() -> None:
                for message in stream:
                    if message.HasField("run"):
                        found.append((message.run.id, message.sequence))
                        if message.run.HasField("finished_at"):
                            over.add(message.run.id)
                    if last.is_set() and over >= started:
                        return

            started: set[str] = set()
            watching = threading.Thread(target=watch)
            watching.start()
            for _ in range(4):
                for _ in range(5):
                    started.add(daemon.start_run("killed"))
                wait_until(lambda: len(found) >= len(started), "the watcher follows")
                daemon.kill()
                daemon.start()
            last.set()
            started.add(daemon.start_run("killed"))
            watching.join(WITHIN)
            assert not watching.is_alive(), f"{started - over} never ended"
        assert len(found) == len(set(found)), "no change comes twice"
        for run_id in started:
            stored = list(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=WITHIN))[-1].sequence
            assert [number for each, number in found if each == run_id] == list(range(stored + 1))
