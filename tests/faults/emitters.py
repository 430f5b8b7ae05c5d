"""Clients that emit events, bind schedules to subjects and apply workflows again, and note the answers.

They do so whether the daemon is there or not.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from faults.listeners import BOUND, CHAIN, LOOP, NOTE, ORDER, Listening
from toban.v1 import (
    event_pb2,
    event_pb2_grpc,
    schedule_pb2,
    schedule_pb2_grpc,
    workflow_pb2,
    workflow_pb2_grpc,
)

_T = TypeVar("_T")

CLIENTS = 3
HOPS = 2
"""Runs of a chain that steps make."""
_UNANSWERED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
_CALL = 5.0
_REPEATED = 0.25
"""How many events have the key of an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An acknowledged event: the request and the answer."""

    type: str
    payload: Mapping[str, Any]
    key: str
    event_id: str
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The only schedule of a subject: due `times` times, `every` so many seconds, or once `at` a time.

    `id` is empty if nobody can say whether it was stored: there was no answer until its time was over.
    """

    subject: str
    id: str
    action: str
    workflow: str
    every: float
    at: float
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Another text of a workflow, and the version that it was acknowledged as.

    `changed` is what the answer says; false: one who died before he could answer had stored it.
    """

    workflow: str
    source: str
    version: int
    changed: bool
    asked: float
    answered: float


@dataclass(slots=True, kw_only=True)
class Told:
    """What the daemon has acknowledged: from then on it must be true for ever. Schedules are noted in any case."""

    asked: list[Asked] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    """Subjects whose schedules were to be cancelled."""
    applied: list[Applied] = field(default_factory=list)
    """In order."""


class Emitters:
    """Threads. What they asked for is asked again until there is an answer, and so is every call."""

    def __init__(
        self,
        state_dir: Path,
        seed: float,
        *,
        pause: float,
        schedules: int,
        workflows: Mapping[str, Listening],
        put_file: Callable[[], object],
        applying: threading.Event,
    ) -> None:
        """`pause`: between two events of a client, at most. So many `schedules` are made in all.

        `workflows` are those that are applied again; `applying` is set while one waits for the answer to that.
        """
        self.told = Told()
        self._workflows = workflows
        self._put_file = put_file
        self._applying = applying
        self._target = f"unix:{quote(f'{state_dir}/toban.sock')}"
        self._rng = random.Random(seed)
        self._pause = pause
        self._schedules = schedules
        self._keys: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._abandoned = False
        self._failure: BaseException | None = None
        works: list[Callable[[random.Random], None]] = [self._emit_on] * CLIENTS
        works += [self._bind_on, self._start_chains, self._apply_on, self._put_files]
        self._threads = [
            threading.Thread(target=self._work, args=(work, random.Random(self._rng.random()))) for work in works
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """In order, with a daemon that serves: nothing is left unanswered."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "clients do not get their answers"
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Ends them somehow, when the test has failed already."""
        self._abandoned = True
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _work(self, work: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            work(rng)
        except _AbandonedError:
            pass
        except BaseException as error:
            self._failure = error

    # -- events

    def _emit_on(self, rng: random.Random) -> None:
        while not self._stop.is_set():
            event_type = rng.choice((ORDER, ORDER, NOTE))
            payload: dict[str, Any] = {"n": rng.randrange(1000)} if event_type == ORDER else {}
            if rng.random() < 0.5:
                payload["tag"] = rng.choice("xyz")
            key = f"key-{rng.getrandbits(64):x}" if rng.random() < 0.6 else ""
            with self._lock:
                if self._keys and rng.random() < _REPEATED:
                    event_type, key = rng.choice(self._keys)
                    payload = {"n": rng.randrange(1000)}
                elif key:
                    # Before it is asked for: others may ask for the same at the same time.
                    self._keys.append((event_type, key))
            self._emit(rng, event_type, payload, key)
            self._stop.wait(rng.uniform(0, self._pause))

    def _start_chains(self, rng: random.Random) -> None:
        self._emit(rng, LOOP, {}, "")
        self._emit(rng, CHAIN, {"hops": HOPS}, "")
        while not self._stop.is_set():
            self._stop.wait(40 * self._pause)
            if not self._stop.is_set():
                self._emit(rng, rng.choice((CHAIN, CHAIN, LOOP)), {"hops": HOPS}, "")

    def _emit(self, rng: random.Random, event_type: str, payload: Mapping[str, Any], key: str) -> None:
        # Without a key an event that is asked for twice is stored once because of the id of its request.
        request_id = _request_id(rng) if not key or rng.random() < 0.5 else ""
        request = event_pb2.EmitEventRequest(
            type=event_type,
            payload_json=json.dumps(payload),
            dedupe_key=key,
            request_id=request_id,
        )
        answer = self._answered(
            lambda channel: event_pb2_grpc.EventServiceStub(channel).EmitEvent(request, timeout=_CALL)
        )
        asked = Asked(
            type=event_type,
            payload=payload,
            key=key,
            event_id=answer.event.id,
            created=answer.created,
        )
        with self._lock:
            self.told.asked.append(asked)

    # -- schedules

    def _bind_on(self, rng: random.Random) -> None:
        for number in range(self._schedules):
            if self._stop.is_set():
                return
            subject = f"subject-{number}"
            self._bind(rng, subject)
            self._stop.wait(rng.uniform(0, 4 * self._pause))
            if rng.random() < 0.2:
                self._cancel(subject)

    def _cancel(self, subject: str) -> None:
        self.told.cancelled.add(subject)
        request = schedule_pb2.CancelBySubjectRequest(subject=subject)
        self._answered(
            lambda channel: schedule_pb2_grpc.ScheduleServiceStub(channel).CancelBySubject(request, timeout=_CALL)
        )

    def _bind(self, rng: random.Random, subject: str) -> None:
        actions = schedule_pb2.ScheduleAction
        action, workflow = rng.choice(
            (
                (actions.SCHEDULE_ACTION_REMINDER, ""),
                (actions.SCHEDULE_ACTION_REMINDER, BOUND),
                (actions.SCHEDULE_ACTION_ESCALATE, ""),
                (actions.SCHEDULE_ACTION_WORKFLOW, BOUND),
                (actions.SCHEDULE_ACTION_WORKFLOW, "reminded"),
            )
        )
        every, at, times = 0.0, 0.0, 1
        rule = schedule_pb2.ScheduleRule()
        if rng.random() < 0.5:
            every, times = 1.0, rng.randint(2, 4)
            rule.every.CopyFrom(Duration(seconds=1))
        else:
            at = float(int(time.time() + rng.uniform(2.0, 6.0)))
            rule.at.CopyFrom(Timestamp(seconds=int(at)))
        request = schedule_pb2.CreateScheduleRequest(
            subject=subject,
            rule=rule,
            action=action,
            workflow=workflow,
            max_occurrences=times if every else 0,
            dedupe_key="only" if rng.random() < 0.5 else "",
            request_id=_request_id(rng),
        )
        schedule_id = ""
        try:
            schedule_id = self._answered(
                lambda channel: schedule_pb2_grpc.ScheduleServiceStub(channel).CreateSchedule(request, timeout=_CALL)
            ).schedule.id
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT or not 0 < at < time.time():
                raise
        name = actions.Name(action).removeprefix("SCHEDULE_ACTION_").lower()
        self.told.bound.append(
            Bound(
                subject=subject,
                id=schedule_id,
                action=name,
                workflow=workflow,
                every=every,
                at=at,
                times=times,
            )
        )

    # -- what is around events

    def _apply_on(self, rng: random.Random) -> None:
        editions = dict.fromkeys(sorted(self._workflows), 1)
        while not self._stop.wait(rng.uniform(0, 2 * self._pause)):
            name = rng.choice(list(editions))
            editions[name] += 1
            self._applying.set()
            self._apply(rng, name, self._workflows[name].definition(editions[name]))
            self._applying.clear()

    def _apply(self, rng: random.Random, name: str, source: str) -> None:
        definition = workflow_pb2.Definition(source=source)
        request = workflow_pb2.UpdateWorkflowRequest(
            workflow=workflow_pb2.Workflow(name=name, definition=definition),
            request_id=_request_id(rng) if rng.random() < 0.5 else "",
        )
        asked = time.time()
        answer = self._answered(
            lambda channel: workflow_pb2_grpc.WorkflowServiceStub(channel).UpdateWorkflow(request, timeout=_CALL)
        )
        self.told.applied.append(
            Applied(
                workflow=name,
                source=source,
                version=answer.workflow.version,
                changed=answer.changed,
                asked=asked,
                answered=time.time(),
            )
        )

    def _put_files(self, rng: random.Random) -> None:
        while not self._stop.wait(rng.uniform(0, 4 * self._pause)):
            self._put_file()

    def _answered(self, call: Callable[[grpc.Channel], _T]) -> _T:
        """Makes the call until a daemon answers. Raises grpc.RpcError for a refusal."""
        while True:
            # A channel of its own each time: one to a daemon that died waits before it tries again.
            with grpc.insecure_channel(self._target) as channel:
                try:
                    return call(channel)
                except grpc.RpcError as error:
                    if error.code() not in _UNANSWERED:
                        raise
            if self._abandoned:
                raise _AbandonedError
            time.sleep(0.01)


class _AbandonedError(Exception):
    pass


def _request_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))
