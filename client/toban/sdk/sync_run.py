"""A run as an object of the blocking client."""

from __future__ import annotations

from toban.sdk.run_facts import RunFacts
from toban.sdk.run_handle import Run
from toban.sdk.sync import Blocking, SyncClient, blocking, iterating, returning_run, yielding_runs
from toban.v1 import run_pb2


class SyncRun(RunFacts, Blocking[Run]):
    """The same as Run, blocking; `logs`, `watch` and `artifacts` are generators.

    run = toban.run("nightly", {"day": "monday"})
    for line in run.logs():
        print(line.step, line)
    run.wait(check=True)
    print(run.steps["build"].result)
    """

    def __init__(self, client: SyncClient, run: Run) -> None:
        self._client = client
        self._target = run

    @property
    def message(self) -> run_pb2.Run:
        """The protobuf message, with every fact. It must not be changed."""
        return self._target.message

    refresh = returning_run(Run.refresh)
    wait = returning_run(Run.wait)
    watch = yielding_runs(Run.watch)
    logs = iterating(Run.logs)
    artifacts = iterating(Run.artifacts)
    artifact_data = iterating(Run.artifact_data)
    cancel = returning_run(Run.cancel)
    pause = returning_run(Run.pause)
    resume = returning_run(Run.resume)
    approve = returning_run(Run.approve)
    reject = returning_run(Run.reject)
    retry = returning_run(Run.retry)
    pin = returning_run(Run.pin)
    unpin = returning_run(Run.unpin)
    delete = blocking(Run.delete)

    @property
    def _owner(self) -> SyncClient:
        return self._client

    def _handle(self, run: Run) -> SyncRun:
        return self if run is self._target else super()._handle(run)
