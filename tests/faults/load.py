"""Starts runs, cancels and pauses some, with or without a running daemon, and records every acknowledgement."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import grpc

from faults.lock_release import release_gone
from faults.workload import SIZES, WorkflowModel
from toban.v1 import run_pb2, run_pb2_grpc, system_pb2, system_pb2_grpc

_T = TypeVar("_T")

MOST_ACTIVE = 12
_PAUSED = 0.08
"""How many runs are paused for a while."""
_UNANSWERED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
_CALL = 2.5
ENVIRONMENT = {
    "TOBAN_RETENTION_COMPRESS_AFTER": "200ms",
    "TOBAN_LOCKS": ",".join(f"{name}={size}" for name, size in SIZES.items()),
}
"""For the daemon, so that there is something to keep house for."""
_ACTIVE = [run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING]


@dataclass(slots=True)
class Ledger:
    """The answers of the daemon, which must stay true."""

    workflows: dict[str, str] = field(default_factory=dict)
    """By the id of each acknowledged run."""
    requests: dict[str, str] = field(default_factory=dict)
    """The request that a run was acknowledged for."""
    cancel_sent: set[str] = field(default_factory=set)
    cancel_acknowledged: set[str] = field(default_factory=set)
    ended: dict[str, int] = field(default_factory=dict)
    """Final states that somebody was shown."""
    contradictions: list[str] = field(default_factory=list)
    """What the daemon answered and can never be right."""


class Load:
    """One thread. What it asked for is asked again, under the same id, until there is an answer."""

    def __init__(
        self,
        state_dir: Path,
        workflows: Mapping[str, WorkflowModel],
        seed: float,
        *,
        patient_with: Collection[grpc.StatusCode] = (),
    ) -> None:
        """A call that is refused with a code of `patient_with` is repeated, like an unanswered one."""
        self._again = {*_UNANSWERED, *patient_with}
        self.ledger = Ledger()
        self._target = f"unix:{quote(f'{state_dir}/toban.sock')}"
        self._models = list(workflows.values())
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")
        self._cancels: list[tuple[float, str]] = []
        self._resumes: list[tuple[float, str]] = []
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the load in order, with a daemon that serves: nothing is left unanswered, all cancels are sent."""
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the load does not get its answers"
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Ends it somehow, when the test has failed already."""
        self._failure = _Abandoned()
        self._stop.set()
        self._thread.join(30)

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._cancel_due(time.monotonic())
                self._resume_due(time.monotonic())
                self._start_one()
                self._look_at_ends()
                if self._rng.random() < 0.1:
                    self._keep_house()
                self._stop.wait(self._rng.uniform(0, 0.06))
            self._cancel_due(float("inf"))
            self._resume_due(float("inf"))
        except _Abandoned:
            pass
        except BaseException as error:
            self._failure = error

    def _start_one(self) -> None:
        weights = [model.weight for model in self._models]
        (model,) = self._rng.choices(self._models, weights)
        request_id = str(uuid.UUID(int=self._rng.getrandbits(128)))
        cancelled = self._rng.random() < model.cancelled
        delay = self._rng.choice((0.0, self._rng.uniform(0, 1.0)))
        paused = self._rng.uniform(0, 0.6) if self._rng.random() < _PAUSED else None
        if not self._has_room():
            return
        request = run_pb2.StartRunRequest(workflow=model.name, request_id=request_id)
        run = self._answered(lambda stub: stub.StartRun(request, timeout=_CALL).run)
        known = self.ledger.requests.get(run.id)
        if known is not None:
            text = f"requests {known} and {request_id} were both answered with run {run.id}"
            self.ledger.contradictions.append(text)
        self.ledger.requests[run.id] = request_id
        self.ledger.workflows[run.id] = model.name
        if cancelled:
            self._cancels.append((time.monotonic() + delay, run.id))
        if paused is not None:
            hold = run_pb2.PauseRunRequest(id=run.id)
            self._ask(run.id, "pause", lambda stub: stub.PauseRun(hold, timeout=_CALL))
            self._resumes.append((time.monotonic() + paused, run.id))

    def _has_room(self) -> bool:
        """Waits a little for it."""
        request = run_pb2.ListRunsRequest(states=_ACTIVE, page_size=MOST_ACTIVE)
        active = self._answered(lambda stub: stub.ListRuns(request, timeout=_CALL).runs)
        if len(active) < MOST_ACTIVE:
            return True
        self._stop.wait(0.03)
        return False

    def _look_at_ends(self) -> None:
        """What a client has once been shown as ended stays as it was shown."""
        request = run_pb2.ListRunsRequest(page_size=30)
        for run in self._answered(lambda stub: stub.ListRuns(request, timeout=_CALL).runs):
            if run.state in _ACTIVE:
                if run.id in self.ledger.ended:
                    self.ledger.contradictions.append(f"run {run.id} had ended, and runs again")
            else:
                self.ledger.ended.setdefault(run.id, run.state)

    def _keep_house(self) -> None:
        """Logs of what has ended are compressed, as a daemon does by itself when it lives for long enough."""
        with grpc.insecure_channel(self._target) as channel, contextlib.suppress(grpc.RpcError):
            request = system_pb2.CollectGarbageRequest()
            system = system_pb2_grpc.SystemServiceStub(channel)
            system.CollectGarbage(request, timeout=1.0)
            release_gone(system)

    def _cancel_due(self, now: float) -> None:
        due = [run_id for at, run_id in self._cancels if at <= now]
        self._cancels = [(at, run_id) for at, run_id in self._cancels if at > now]
        for run_id in due:
            self.ledger.cancel_sent.add(run_id)
            request = run_pb2.CancelRunRequest(id=run_id, reason="by the load")
            # Asked again without an answer, it is the same cancel: finally steps run to their end.
            if self._ask(run_id, "cancel", partial(_cancel, request=request)):
                self.ledger.cancel_acknowledged.add(run_id)

    def _resume_due(self, now: float) -> None:
        due = [run_id for at, run_id in self._resumes if at <= now]
        self._resumes = [(at, run_id) for at, run_id in self._resumes if at > now]
        for run_id in due:
            request = run_pb2.ResumeRunRequest(id=run_id)
            self._ask(run_id, "resume", partial(_resume, request=request))

    def _ask(self, run_id: str, what: str, call: Callable[[run_pb2_grpc.RunServiceStub], object]) -> bool:
        """Asks something of an acknowledged run; False: it had ended. That it is not known can never be right."""
        answer = self._answered(lambda stub: _refusal(stub, call))
        if answer is grpc.StatusCode.NOT_FOUND:
            text = f"run {run_id} was acknowledged, and its {what} is answered with {answer.name}"
            self.ledger.contradictions.append(text)
        return answer is None

    def _answered(self, call: Callable[[run_pb2_grpc.RunServiceStub], _T]) -> _T:
        """Makes the call until a daemon answers. Raises grpc.RpcError for a refusal."""
        while True:
            # A channel of its own each time: one to a daemon that died waits before it tries again.
            with grpc.insecure_channel(self._target) as channel:
                try:
                    return call(run_pb2_grpc.RunServiceStub(channel))
                except grpc.RpcError as error:
                    if error.code() not in self._again:
                        raise
            if isinstance(self._failure, _Abandoned):
                raise self._failure
            time.sleep(0.01)


class _Abandoned(BaseException):
    pass


def _cancel(stub: run_pb2_grpc.RunServiceStub, request: run_pb2.CancelRunRequest) -> None:
    again = run_pb2.CancelRunRequest(id=request.id, reason=request.reason, is_retry=request.is_retry)
    request.is_retry = True
    stub.CancelRun(again, timeout=_CALL)


def _resume(stub: run_pb2_grpc.RunServiceStub, request: run_pb2.ResumeRunRequest) -> None:
    stub.ResumeRun(request, timeout=_CALL)


def _refusal(
    stub: run_pb2_grpc.RunServiceStub, call: Callable[[run_pb2_grpc.RunServiceStub], object]
) -> grpc.StatusCode | None:
    """None: it is recorded. FAILED_PRECONDITION: the run had ended."""
    try:
        call(stub)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND):
            return error.code()
        raise
    return None
