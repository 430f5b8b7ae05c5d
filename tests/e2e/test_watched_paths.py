"""Watched paths of a daemon that writes there itself."""

from __future__ import annotations

import functools
import json
import subprocess
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


def watching(name: str, path: Path, settle: str = "0s") -> str:
    return (
        f"name: {name}\ndescription: x\nwatch: {{path: '{path}', settle: {settle}}}\noverlap: allow\n"
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


def test_a_file_is_an_event_when_it_is_complete(daemon: Daemon, tmp_path: Path) -> None:
    inbox, aside = tmp_path / "in", tmp_path / "aside"
    inbox.mkdir()
    daemon.apply(watching("whole", inbox, settle="3s"))
    daemon.apply(watching("patient", tmp_path / "in", settle="1h"))

    def is_told_of_a_rename() -> bool:
        # A file that is renamed is complete at once, for whatever time a watch waits.
        aside.write_text("x")
        aside.rename(inbox / "renamed")
        return told(daemon).count(str(inbox / "renamed")) >= 2

    wait_until(is_told_of_a_rename, "nothing is told of a rename")
    slow = inbox / "slow"
    with slow.open("w") as file:
        subprocess.run(["sh", "-c", "for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.5; done"], stdout=file, check=True)
    wait_until(lambda: str(slow) in told(daemon), "nothing is told of the file")
    request = event_pb2.ListEventsRequest(types=["FILE_CHANGED"], page_size=1000)
    events = daemon.events.ListEvents(request, timeout=20).events
    [event] = [each for each in events if _payload(daemon, each.id)["path"] == str(slow)]
    payload = _payload(daemon, event.id)
    assert (payload["workflow"], payload["change"]) == ("whole", "added")
    assert event.emitted_at.ToMicroseconds() / 1e6 >= slow.stat().st_mtime + 3
    slow.unlink()
    wait_until(lambda: told(daemon).count(str(slow)) == 3, "nothing is told of its end")
