"""The runs of schedules as their steps record them in a file that no daemon knows, and a check of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from faults.timed import Timed
from faults.timeline import LATE, Timeline
from helpers.daemon import Daemon
from toban.v1 import run_pb2

REPLACED = "cancelled: replaced by run "


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run, as far as its schedule matters. `number` counts those of its workflow."""

    id: str
    workflow: str
    schedule: str
    due: float
    missed: tuple[float, ...]
    created: float
    number: int = 0
    state: str = "SUCCEEDED"
    error: str = ""
    trigger: str = "SCHEDULE"


def started_of(run: run_pb2.Run) -> Started:
    return Started(
        id=run.id,
        workflow=run.workflow,
        schedule=run.schedule_id,
        due=run.scheduled_at.ToMicroseconds() / 1e6,
        missed=tuple(at.ToMicroseconds() / 1e6 for at in run.missed),
        created=run.created_at.ToMicroseconds() / 1e6,
        number=run.number,
        state=run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_"),
        error=run.error_message,
        trigger=run_pb2.Trigger.Name(run.triggered_by).removeprefix("TRIGGER_"),
    )


def runs_of(daemon: Daemon) -> list[run_pb2.Run]:
    found: list[run_pb2.Run] = []
    request = run_pb2.ListRunsRequest(page_size=1000)
    while True:
        page = daemon.runs.ListRuns(request, timeout=20)
        found += page.runs
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


@dataclass(slots=True, kw_only=True)
class Witnessed:
    """When the step of each run began, came to its end, or was signalled, by the right clock."""

    began: dict[str, list[float]] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    signalled: dict[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Witnessed:
        """Raises ValueError for a line that no step wrote."""
        told = cls()
        for line in lines:
            match line.split():
                case ["B", run, at]:
                    told.began.setdefault(run, []).append(float(at))
                case ["E", run, at]:
                    told.done[run] = float(at)
                case ["C", run, at]:
                    told.signalled[run] = float(at)
                case _:
                    raise ValueError(f"no step says {line!r}")
        return told

    def over(self, run: str, cuts: Sequence[float]) -> float:
        """When its last process had ended; never, if that was not observed."""
        ends = [told[run] for told in (self.done, self.signalled) if run in told]
        began = self.began.get(run, [math.inf])[0]
        return min((*ends, *(cut for cut in cuts if cut >= began)), default=math.inf)


def check_runs_done(
    workflows: Sequence[Timed], runs: Mapping[str, Started], told: Witnessed, time: Timeline
) -> Iterator[str]:
    """Each run was executed once, to an end that has a reason, and kept to its turn."""
    for run_id in sorted(told.began.keys() - runs.keys()):
        yield f"a run was executed and does not exist: {run_id}"
    for workflow in workflows:
        own = [run for run in runs.values() if run.workflow == workflow.name]
        for run in own:
            shown = f"run {run.id} of {workflow.name} ({workflow.overlap})"
            if len(told.began.get(run.id, ())) > 1:
                yield f"{shown} was executed more than once"
            wrong = _wrong_end(workflow, run, runs, told, time)
            if wrong:
                yield f"{shown} is {run.state} ({run.error}): {wrong}"
        if workflow.overlap != "allow":
            yield from _check_turns(workflow, own, told, time)


def _wrong_end(
    workflow: Timed,
    run: Started,
    runs: Mapping[str, Started],
    told: Witnessed,
    time: Timeline,
) -> str:
    match run.state:
        case "SUCCEEDED":
            return "" if run.id in told.done else "its step did not come to its end"
        case "CANCELLED":
            name = run.error.removeprefix(REPLACED)
            other = next((each for each in runs.values() if f"{each.workflow}#{each.number}" == name), None)
            if workflow.overlap != "replace" or other is None or other.workflow != run.workflow:
                return "nobody cancelled it"
            return "" if other.number > run.number else "the other one is older"
        case "FAILED":
            made = min(time.moments(run.created), default=math.inf)
            # What was done a moment before was not written down.
            done = told.done.get(run.id, math.inf)
            if any(made - LATE <= cut <= done + LATE for cut in time.cut):
                return ""
            return "the machine did not go down meanwhile"
        case _:
            return "it has not come to its end"


def _check_turns(workflow: Timed, own: Sequence[Started], told: Witnessed, time: Timeline) -> Iterator[str]:
    """One at a time; those that wait for each other in the order in which they were made."""
    begun = sorted((run for run in own if run.id in told.began), key=lambda run: told.began[run.id][0])
    for one, other in pairwise(begun):
        # One whose end nobody saw was cancelled, and had no time to say so.
        over = told.over(one.id, time.cut)
        if told.began[other.id][0] < over < math.inf:
            yield f"runs {one.id} and {other.id} of {workflow.name} were under way at once"
        if workflow.overlap == "queue" and one.number > other.number:
            yield f"run {other.id} of {workflow.name} was made before {one.id} and began after it"
