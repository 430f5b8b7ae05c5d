"""Backfills of schedules whose due times have all passed, asked for until they are answered, and a check of them."""

from __future__ import annotations

import json
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from faults.timed import Timed
from faults.timed_checker import Line
from faults.timed_runs import Started
from faults.timeline import moment
from helpers.daemon import Daemon
from toban.v1 import workflow_pb2

EVERY = 2
MOST = 6
"""Due times of one backfill."""
_UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A backfill that was acknowledged: its due times, and the run of each."""

    again: bool
    dues: Sequence[float]
    runs: Mapping[float, str]


@dataclass(slots=True, kw_only=True)
class Past:
    """A workflow whose schedule was due every other second in the past, and never is again."""

    timed: Timed
    first: float
    last: float
    asked: list[Asked] = field(default_factory=list)
    """In order."""

    def definition(self) -> str:
        found: dict[str, Any] = json.loads(self.timed.definition([]))
        start, end = (moment(at).isoformat() for at in (self.first, self.last))
        found["schedule"] = [{"cron": f"*/{EVERY} * * * * *", "start": start, "end": end}]
        return json.dumps(found)

    def request(self, rng: random.Random) -> workflow_pb2.BackfillScheduleRequest:
        """Of a few of its due times. `again` needs a request id, or a repeated call would start further runs."""
        again = rng.random() < 0.3
        wanted = workflow_pb2.BackfillScheduleRequest(workflow=self.timed.name, again=again)
        dues = list(self.dues())
        first = rng.randrange(len(dues))
        wanted.from_time.FromSeconds(int(dues[first]))
        wanted.to_time.FromSeconds(int(dues[min(len(dues) - 1, first + rng.randrange(MOST))]))
        if again or rng.random() < 0.5:
            wanted.request_id = str(uuid.UUID(int=rng.getrandbits(128)))
        return wanted

    def dues(self) -> Iterator[float]:
        return (float(at) for at in range(int(self.first), int(self.last) + 1, EVERY))

    def acknowledge(
        self, request: workflow_pb2.BackfillScheduleRequest, answer: workflow_pb2.BackfillScheduleResponse
    ) -> None:
        within = (request.from_time.ToMicroseconds() / 1e6, request.to_time.ToMicroseconds() / 1e6)
        runs = {line.due_at.ToMicroseconds() / 1e6: line.run_id for line in answer.times}
        dues = [due for due in self.dues() if within[0] <= due <= within[1]]
        self.asked.append(Asked(again=request.again, dues=dues, runs=runs))


def ask(daemon: Daemon, request: workflow_pb2.BackfillScheduleRequest) -> workflow_pb2.BackfillScheduleResponse | None:
    """The answer; None if there is none: the progress of the daemon is then unknown."""
    try:
        return daemon.workflows.BackfillSchedule(request, timeout=20)
    except grpc.RpcError as error:
        if error.code() not in _UNANSWERED:
            raise
        return None


def make_past(timed: Timed, shown: float) -> Past:
    """Its last due time is long enough ago not to come again when the clock is set back."""
    last = (int(shown) - 300) // EVERY * EVERY
    return Past(timed=timed, first=float(last - 20 * EVERY), last=float(last))


def check_backfills(pasts: Sequence[Past], lines: Sequence[Line], runs: Mapping[str, Started]) -> Iterator[str]:
    """Each due time has one run of its own, and one more for each backfill that said `again`; and a line with a run."""
    for past in pasts:
        name = past.timed.name
        found: dict[float, list[str]] = defaultdict(list)
        for run in runs.values():
            if run.workflow == name:
                found[run.due].append(run.id)
                if run.trigger != "BACKFILL" or run.missed:
                    yield f"run {run.id} of {name} is none of a backfill: {run}"
        wanted = dict.fromkeys(past.dues(), 0)
        for asked in past.asked:
            if sorted(asked.runs) != sorted(asked.dues):
                yield f"a backfill of {name} answered {sorted(asked.runs)} instead of {asked.dues}"
            for due in asked.dues:
                wanted[due] = wanted[due] + 1 if asked.again else max(wanted[due], 1)
                run_id = asked.runs.get(due)
                if run_id not in found[due]:
                    yield f"a backfill of {name} named a run of {moment(due)} that does not exist: {run_id}"
        for due in sorted({*wanted, *found}):
            if len(found[due]) != wanted.get(due, 0):
                yield f"{name} due {moment(due)} has {len(found[due])} runs instead of {wanted.get(due, 0)}"
            own = [line for line in lines if line.schedule == f"{name}/0" and line.due == due]
            if len(own) != bool(wanted.get(due)):
                yield f"{name} due {moment(due)} has {len(own)} lines"
            yield from (
                f"its line is {line}" for line in own if line.outcome != "CAUGHT_UP" or line.run not in found[due]
            )
