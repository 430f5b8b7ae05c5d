"""Limits of concurrent calls by kind, so that a flood of one kind delays neither the others nor a cancel.

Each call belongs to a lane. A lane handles a number of calls at once, queues a number more, and refuses the rest before
their requests are read.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from toban.v1 import (
    access_pb2,
    dead_letter_pb2,
    event_pb2,
    history_pb2,
    hook_pb2,
    job_pb2,
    run_pb2,
    schedule_pb2,
    secret_pb2,
    system_pb2,
    workflow_pb2,
)

SERVED = (
    access_pb2.DESCRIPTOR.services_by_name["AccessService"],
    workflow_pb2.DESCRIPTOR.services_by_name["WorkflowService"],
    job_pb2.DESCRIPTOR.services_by_name["JobService"],
    run_pb2.DESCRIPTOR.services_by_name["RunService"],
    dead_letter_pb2.DESCRIPTOR.services_by_name["DeadLetterService"],
    event_pb2.DESCRIPTOR.services_by_name["EventService"],
    schedule_pb2.DESCRIPTOR.services_by_name["ScheduleService"],
    secret_pb2.DESCRIPTOR.services_by_name["SecretService"],
    hook_pb2.DESCRIPTOR.services_by_name["HookService"],
    history_pb2.DESCRIPTOR.services_by_name["HistoryService"],
    system_pb2.DESCRIPTOR.services_by_name["SystemService"],
)
"""The services of Toban."""
ALL_SERVED = (
    *SERVED,
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
)


@dataclass(frozen=True, slots=True)
class Limit:
    """How many calls of a lane are handled at once, and how many may wait."""

    active: int
    waiting: int


STREAM_LIMIT = 1000
LIMITS: Mapping[str, Limit] = {
    "control": Limit(64, 1000),
    "read": Limit(16, 1000),
    "write": Limit(64, 2000),
    # Calls that parse definitions, evaluate expressions or read many files: each may take long.
    "heavy": Limit(16, 500),
    # A stream may last for days, so none waits for the end of another.
    "stream": Limit(STREAM_LIMIT, 0),
}

_LANES: Mapping[str, str] = {
    "control": """
        CancelRun PauseRun ResumeRun DecideApproval PinRun UnpinRun SetWorkflowEnabled SetJobEnabled CancelSchedule
        CancelBySubject DiscardDeadLetter RevokeToken RevokeSession WhoAmI GetAccess GetInfo GetConfig Drain Resume
        ReleaseLock Check
    """,
    "read": """
        GetWorkflow ListWorkflows ListWorkflowSummaries GetOverview ListWorkflowVersions GetWorkflowVersion
        PreviewSchedule ExplainSchedule ListFires GetJob ListJobs GetRun GetCurrentRun ListRuns FindIds
        ListProcessExecutions GetProcessExecution ListArtifacts ListDeadLetters GetDeadLetter GetEvent ListEvents
        GetSchedule ListSchedules InterpretTime ListLocks GetSecret ListSecrets ListTokens
        ListSessions ListAuditEntries GetHook ListHooks ReadLog
        SearchLogs CountRunsByDay ListRunGrid GetEventChain List
    """,
    "write": """
        StartRun RetryRun RunJob RequeueDeadLetter EmitEvent CreateSchedule SetSecret DeleteSecret GrantSecret
        RevokeSecretGrant CreateToken CreateSession CreateHook DeleteHook DeliverHook
    """,
    "heavy": """
        CreateWorkflow UpdateWorkflow DeleteWorkflow ValidateWorkflow RestoreWorkflowVersion ApplyDefinitions CreateJob
        UpdateJob DeleteJob PlanRun BackfillSchedule DeleteRun ResolveEvent CollectGarbage Doctor Reload
        ReloadConfig RotateSecretsKey VerifyAudit
    """,
    "stream": "WatchRun WatchRuns StreamLogs DownloadArtifact Backup WatchEvents Watch ServerReflectionInfo",
}


def lane_of(method: str) -> str:
    """The lane of a method such as `/toban.v1.RunService/GetRun`; an unknown method gets the slowest lane."""
    return _BY_NAME.get(method.rpartition("/")[2], "heavy")


_BY_NAME = {name: lane for lane, names in _LANES.items() for name in names.split()}


class TooManyCallsError(Exception):
    """Refuses a call before its request is read. `mine`: the caller alone has reached its share of the limit."""

    def __init__(self, lane: str, limit: Limit, *, mine: bool = False) -> None:
        if lane == "stream":
            who = " of this identity" if mine else ""
            text = f"{limit.active} streams{who} are open; close some, or try again later"
        else:
            who = " of this identity" if mine else ""
            text = f"{limit.active} {lane} calls{who} are being handled and {limit.waiting} wait; try again later"
        super().__init__(text)
        self.lane = lane
        self.limit = limit
        self.mine = mine


class Lane:
    """Calls of one identity wait in order; identities take turns. None may take more than its `share`."""

    def __init__(self, name: str, limit: Limit, share: Limit | None = None) -> None:
        self._name = name
        self._limit = limit
        self._share = share or limit
        self._active: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def use(self, share: Limit) -> None:
        """Replaces the share of an identity, for calls that come from now on; no call is refused late."""
        self._share = share

    async def enter(self, who: str = "") -> None:
        """Waits for a slot, to be given back with `leave`. Raises TooManyCallsError."""
        mine = self._waiting.get(who, ())
        if not mine and self._is_free(who):
            self._active[who] += 1
            return
        if self._share != self._limit and self._has_its_share(who, len(mine)):
            raise TooManyCallsError(self._name, self._share, mine=True)
        if sum(map(len, self._waiting.values())) >= self._limit.waiting:
            raise TooManyCallsError(self._name, self._limit)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(who)
            else:
                self._drop(who, turn)
            raise

    def leave(self, who: str = "") -> None:
        self._active[who] -= 1
        if not self._active[who]:
            del self._active[who]
        for other in list(self._waiting):
            if not self._is_free(other):
                continue
            turn = self._waiting[other][0]
            self._drop(other, turn)
            if other in self._waiting:
                # Behind the others.
                self._waiting[other] = self._waiting.pop(other)
            self._active[other] += 1
            turn.set_result(None)
            return

    def _has_its_share(self, who: str, waiting: int) -> bool:
        return waiting >= self._share.waiting and (waiting > 0 or self._active[who] >= self._share.active)

    def _is_free(self, who: str) -> bool:
        return self._active.total() < self._limit.active and self._active[who] < self._share.active

    def _drop(self, who: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[who]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[who]


class Lanes:
    def __init__(
        self, limits: Mapping[str, Limit] = LIMITS, *, calls: int | None = None, streams: int | None = None
    ) -> None:
        """`calls` and `streams`: how many of each kind one identity may have at once; waiting calls count."""
        self._limits = limits
        self._lanes = {name: Lane(name, limit, _share(name, limit, calls, streams)) for name, limit in limits.items()}

    def use(self, *, calls: int, streams: int) -> None:
        """Replaces the shares of an identity."""
        for name, limit in self._limits.items():
            self._lanes[name].use(_share(name, limit, calls, streams))

    def of(self, method: str) -> Lane:
        return self._lanes[lane_of(method)]


def _share(name: str, limit: Limit, calls: int | None, streams: int | None) -> Limit:
    """Three quarters of the slots at most, so that others always find one."""
    if name == "stream":
        return Limit(min(limit.active, streams or limit.active), 0)
    if calls is None:
        return limit
    active = max(1, min(calls, limit.active * 3 // 4))
    return Limit(active, min(calls - active, limit.waiting * 3 // 4))
