"""Watched paths of a daemon that writes there itself."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from toban.v1 import event_pb2, run_pb2, system_pb2


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Its state, its database and its logs are all below one directory."""
    (tmp_path / "db").mkdir()
    surroundings = {
        "TOBAN_DATABASE": f"sqlite:///{tmp_path}/db/toban.db",
        "TOBAN_LOG_FILE": str(tmp_path / "toband.jsonl"),
    }
    with running_daemon(tmp_path / "state", environment=surroundings) as running:
        yield running


def watching(name: str, path: Path) -> str:
    return (
        f"name: {name}\ndescription: x\nwatch: {path}\noverlap: allow\n"
        f"on: {{event: FILE_CHANGED, condition: event.payload.workflow == '{name}'}}\n"
        "steps: {only: {run: 'true'}}\n"
    )


def told(daemon: Daemon) -> list[str]:
    """The paths of all events, newest first."""
    request = event_pb2.ListEventsRequest(types=["FILE_CHANGED"], page_size=1000)
    events = daemon.events.ListEvents(request, timeout=20).events
    return [_payload(daemon, event.id)["path"] for event in events]


def _payload(daemon: Daemon, event_id: str) -> dict[str, str]:
    found = daemon.events.GetEvent(event_pb2.GetEventRequest(id=event_id), timeout=20)
    payload: dict[str, str] = json.loads(found.event.payload_json)
    return payload


def all_ended(daemon: Daemon) -> bool:
    runs = daemon.runs.ListRuns(run_pb2.ListRunsRequest(workflow="all"), timeout=20).runs
    return bool(runs) and all(run.HasField("finished_at") for run in runs)


def troubles(daemon: Daemon) -> dict[str, str]:
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    return {each.name: each.detail for each in info.health.conditions}


def test_a_daemon_does_not_tell_of_what_it_writes_itself(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(watching("all", tmp_path))
    paths = [tmp_path / name for name in ("one", "two", "three")]

    def is_told(path: Path) -> bool:
        # Of the first one, before anybody watches, nothing is told.
        path.write_text("x")
        return str(path) in told(daemon)

    # Each is stored, and starts a run.
    for path in paths:
        wait_until(functools.partial(is_told, path), f"nothing is told of {path}")
        wait_until(lambda: all_ended(daemon), "a run goes on")
    assert set(told(daemon)) == {str(path) for path in paths}
    assert troubles(daemon) == {}


def test_a_watch_below_the_state_directory_is_told_to_be_of_no_use(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(watching("own", tmp_path / "state" / "runs"))
    wait_until(lambda: "watches" in troubles(daemon), "nobody says so")
    assert "which are not watched" in troubles(daemon)["watches"]
