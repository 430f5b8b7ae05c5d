"""Limits of concurrent calls by kind, so that a flood of one kind delays neither the others nor a cancel.

Each call belongs to a lane. A lane handles a number of calls at once, queues a number more, and refuses the rest before
their requests are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from toban.v1 import (
    access_pb2,
    dead_letter_pb2,
    event_pb2,
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
        CancelBySubject DiscardDeadLetter RevokeToken WhoAmI GetAccess GetInfo GetConfig Drain Resume ReleaseLock Check
    """,
    "read": """
        GetWorkflow ListWorkflows ListWorkflowSummaries GetOverview ListWorkflowVersions GetWorkflowVersion
        PreviewSchedule ExplainSchedule ListFires GetJob ListJobs GetRun GetCurrentRun ListRuns FindIds
        ListProcessExecutions GetProcessExecution ListArtifacts ListDeadLetters GetDeadLetter GetEvent ListEvents
        GetSchedule ListSchedules InterpretTime ListLocks GetSecret ListSecrets ListTokens
        ListAuditEntries List
    """,
    "write": """
        StartRun RetryRun RunJob RequeueDeadLetter EmitEvent CreateSchedule SetSecret DeleteSecret GrantSecret
        RevokeSecretGrant CreateToken
    """,
    "heavy": """
        CreateWorkflow UpdateWorkflow DeleteWorkflow ValidateWorkflow RestoreWorkflowVersion ApplyDefinitions CreateJob
        UpdateJob DeleteJob PlanRun BackfillSchedule DeleteRun ResolveEvent CollectGarbage Doctor Reload
        RotateSecretsKey VerifyAudit
    """,
    "stream": "WatchRun WatchRuns StreamLogs DownloadArtifact WatchEvents Watch ServerReflectionInfo",
}


def lane_of(method: str) -> str:
    """The lane of a method such as `/toban.v1.RunService/GetRun`; an unknown method gets the slowest lane."""
    return _BY_NAME.get(method.rpartition("/")[2], "heavy")


_BY_NAME = {name: lane for lane, names in _LANES.items() for name in names.split()}


class TooManyCallsError(Exception):
    """Refuses a call before any work is done for it."""

    def __init__(self, lane: str, limit: Limit) -> None:
        if lane == "stream":
            text = f"{limit.active} streams are open; close some, or try again later"
        else:
            text = f"{limit.active} {lane} calls are being handled and {limit.waiting} wait; try again later"
        super().__init__(text)
        self.lane = lane
        self.limit = limit


class Lane:
    def __init__(self, name: str, limit: Limit) -> None:
        self._name = name
        self._limit = limit
        self._free = asyncio.Semaphore(limit.active)
        self._waiting = 0

    async def enter(self) -> None:
        """Waits for a slot, to be given back with `leave`. Raises TooManyCallsError."""
        if self._free.locked() and self._waiting >= self._limit.waiting:
            raise TooManyCallsError(self._name, self._limit)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._free.release()


class Lanes:
    def __init__(self, limits: Mapping[str, Limit] = LIMITS) -> None:
        self._lanes = {name: Lane(name, limit) for name, limit in limits.items()}

    def of(self, method: str) -> Lane:
        return self._lanes[lane_of(method)]
