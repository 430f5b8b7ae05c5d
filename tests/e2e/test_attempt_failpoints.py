"""The daemon dies at each of its failpoints, on both sides of what must be durable: every step still runs once.

Each case is a daemon of its own that kills itself at the Nth pass of one place while it carries out a run of two steps,
and a second one that finishes the work. The cases run side by side.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from helpers.daemon import run_state, running_daemon, step_states
from toban.v1 import run_pb2, system_pb2

DEFINITION = """
name: two
description: two steps that leave a trace each
steps:
  - {name: first, run: echo first >> witness; echo one}
  - {name: second, run: "echo second >> witness; echo {{ steps.first.stdout }} two"}
"""

# Commits of such a run, once the daemon serves: the housekeeping, the run itself, its start, the end of the first
# step with the launch of the second, the end of the second.
PLACES = [
    "store.after_commit=kill@2",
    "store.after_commit=kill@3",
    "launch.after_send=kill@1",
    "store.before_commit=kill@4",
    "store.after_commit=kill@4",
    "launch.before_send=kill@2",
    "launch.after_send=kill@2",
    "store.before_commit=kill@5",
]


@dataclass(frozen=True)
class Outcome:
    """What the second daemon says, and what the steps themselves left behind."""

    how_it_died: int
    runs: Sequence[run_pb2.Run]
    listed: int
    witnesses: Sequence[Sequence[str]]
    printed: Sequence[bytes]
    recovery: system_pb2.Recovery


def lived_through(place: str, directory: Path) -> Outcome:
    requests: list[run_pb2.StartRunRequest] = []
    armed = {"TOBAN_FAILPOINTS": place}
    with running_daemon(directory / "s", environment=armed) as daemon:
        daemon.environment.pop("TOBAN_FAILPOINTS")
        # Commits may be shared, so that the Nth one may be of a later run.
        with contextlib.suppress(grpc.RpcError):
            while len(requests) < 3:
                requests.append(run_pb2.StartRunRequest(workflow="two", request_id=place + "x" * len(requests)))
                daemon.wait_run(daemon.runs.StartRun(requests[-1], timeout=20).run.id)
        how = daemon.wait()
        daemon.start()
        # A caller who got no answer asks again, under the same id.
        ids = [daemon.runs.StartRun(request, timeout=20).run.id for request in requests]
        runs = [daemon.wait_run(run_id) for run_id in ids]
        work = [directory / "s" / "runs" / run_id / "work" for run_id in ids]
        return Outcome(
            how_it_died=how,
            runs=runs,
            listed=len(daemon.runs.ListRuns(run_pb2.ListRunsRequest(), timeout=20).runs),
            witnesses=[(each / "witness").read_text().split() for each in work],
            printed=[daemon.log_of(run_id, "second")[run_pb2.LOG_STREAM_STDOUT] for run_id in ids],
            recovery=daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).recovery,
        )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Outcome]]]:
    prepared = tmp_path_factory.mktemp("d")
    with running_daemon(prepared / "s") as daemon:
        daemon.apply(DEFINITION)
    directories = {place: tmp_path_factory.mktemp("d") for place in PLACES}
    for directory in directories.values():
        shutil.copytree(prepared / "s", directory / "s")
    with ThreadPoolExecutor(3) as pool:
        yield {place: pool.submit(lived_through, place, directories[place]) for place in PLACES}


@pytest.mark.parametrize("place", PLACES)
def test_each_step_runs_once(outcomes: dict[str, Future[Outcome]], place: str) -> None:
    outcome = outcomes[place].result(timeout=120)
    assert outcome.how_it_died == -signal.SIGKILL, "the daemon did not come past this place"
    for run in outcome.runs:
        assert run_state(run) == "SUCCEEDED", run.error_message
        assert step_states(run) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}
        assert [step.attempts for step in run.steps] == [1, 1]
    assert outcome.witnesses == [["first", "second"]] * len(outcome.runs)
    assert outcome.printed == [b"one two\n"] * len(outcome.runs)
    assert outcome.listed == len(outcome.runs), "one request made one run"
    assert outcome.recovery.lost == 0
