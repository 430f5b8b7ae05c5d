"""Compares the ledger of due times and the runs with when schedules were due, and with what was done meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from faults.timed import Timed, Version
from faults.timeline import LATE, NEAR, Timeline, moment
from toban.v1 import run_pb2, workflow_pb2

ON_TIME = 5.0
"""Seconds by which a run may be late and is not one that was missed."""
WITH_RUN = ("FIRED", "CAUGHT_UP")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    schedule: str
    due: float
    outcome: str
    at: float
    reason: str
    run: str

    def __str__(self) -> str:
        said = f"{self.outcome} {self.reason or self.run}".strip()
        return f"{self.schedule} due {moment(self.due):%H:%M:%S.%f}, {said}, {self.at - self.due:.3f} s later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run, as far as its schedule matters."""

    id: str
    workflow: str
    schedule: str
    due: float
    missed: tuple[float, ...]
    created: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    lines: Sequence[Line]
    runs: Mapping[str, Started]
    end: float
    """When the last of it was waited for: what had to be decided by then was."""

    def of(self, schedule: str) -> list[Line]:
        return sorted(
            (line for line in self.lines if line.schedule == schedule), key=lambda line: line.due
        )


def line_of(fire: workflow_pb2.Fire) -> Line:
    return Line(
        schedule=fire.schedule_id,
        due=fire.due_at.ToMicroseconds() / 1e6,
        outcome=workflow_pb2.FireOutcome.Name(fire.outcome).removeprefix("FIRE_OUTCOME_"),
        at=fire.at.ToMicroseconds() / 1e6,
        reason=fire.reason,
        run=fire.run_id,
    )


def started_of(run: run_pb2.Run) -> Started:
    return Started(
        id=run.id,
        workflow=run.workflow,
        schedule=run.schedule,
        due=run.scheduled_at.ToMicroseconds() / 1e6,
        missed=tuple(at.ToMicroseconds() / 1e6 for at in run.missed),
        created=run.created_at.ToMicroseconds() / 1e6,
    )


def check_timed(workflows: Sequence[Timed], ledger: Ledger, line_time: Timeline) -> list[str]:
    """Everything that is wrong, in words."""
    found = [*_check_runs(ledger)]
    known = set()
    for workflow in workflows:
        for index, versions in enumerate(workflow.versions):
            schedule = f"{workflow.name}/{index}"
            known.add(schedule)
            found += _Schedule(workflow, versions, schedule, ledger, line_time).check()
    found += [
        f"nobody made this schedule: {line}" for line in ledger.lines if line.schedule not in known
    ]
    return found


def missing(
    workflows: Sequence[Timed], ledger: Ledger, line_time: Timeline, *, at_all: bool = False
) -> list[str]:
    """Due times that must have been decided, and have no line. `at_all`: those that may still be decided count too."""
    return [
        text
        for workflow in workflows
        for index, versions in enumerate(workflow.versions)
        for text in _Schedule(
            workflow, versions, f"{workflow.name}/{index}", ledger, line_time
        ).missing(at_all=at_all)
    ]


def _check_runs(ledger: Ledger) -> Iterator[str]:
    """A run for each line that names one, and a line for each due time that a run stands for."""
    of_run: dict[str, list[Line]] = {}
    for line in ledger.lines:
        if line.run:
            of_run.setdefault(line.run, []).append(line)
            if line.run not in ledger.runs:
                yield f"its run does not exist: {line}"
            if line.outcome not in WITH_RUN:
                yield f"it has a run: {line}"
        elif line.outcome in WITH_RUN:
            yield f"it has no run: {line}"
    stands_for: Counter[tuple[str, float]] = Counter()
    for run in ledger.runs.values():
        lines = {(line.schedule, line.due) for line in of_run.get(run.id, ())}
        wanted = {(run.schedule, due) for due in (run.due, *run.missed)}
        stands_for.update(wanted)
        if lines != wanted:
            shown = ", ".join(str(moment(due)) for _, due in sorted(lines ^ wanted))
            yield f"run {run.id} of {run.schedule} and the ledger differ about {shown}"
        if list(run.missed) != sorted(set(run.missed)) or any(at >= run.due for at in run.missed):
            yield f"run {run.id} of {run.schedule} misses times out of order"
    for (schedule, due), count in stands_for.items():
        if count > 1:
            yield f"{count} runs stand for {schedule} due {moment(due)}"


class _Schedule:
    """One schedule in all its versions."""

    def __init__(
        self,
        workflow: Timed,
        versions: Sequence[Version],
        name: str,
        ledger: Ledger,
        line_time: Timeline,
    ) -> None:
        self._workflow = workflow
        self._versions = versions
        self._name = name
        self._runs = ledger.runs
        self._end = ledger.end
        self._time = line_time
        self._lines = ledger.of(name)
        self._has_line = {line.due for line in self._lines}
        self._may = [self._due(version, version.asked - NEAR) for version in versions]
        # If one became due while it was stored, all counting begins there.
        for version, times in zip(versions, self._may, strict=True):
            times |= self._due(version, version.stored)

    def _due(self, version: Version, since: float) -> set[float]:
        until = self._time.highest(since, min(version.end_stored, self._end) + LATE)
        return set(version.spec.due(self._time.shown(since), until))

    def check(self) -> Iterator[str]:
        for line, count in Counter((line.schedule, line.due) for line in self._lines).items():
            if count > 1:
                yield f"{count} lines for {line[0]} due {moment(line[1])}"
        ordered = sorted(self._lines, key=lambda line: (line.at, line.due))
        decided = [list(lines) for _, lines in groupby(ordered, key=lambda line: line.at)]
        for lines in decided:
            yield from self._check_decision(lines)
        yield from self.missing()

    def missing(self, *, at_all: bool = True) -> Iterator[str]:
        """Of the last version nothing may be missing at the end; of others what was decided just in time may be."""
        for version in self._versions:
            end = min(version.end_asked, self._end)
            for due in sorted(self._due(version, version.stored) - self._has_line):
                reached = self._time.reached(due + version.delay, version.stored)
                if reached is None or reached > end:
                    continue
                lasts = at_all and version.end_asked > self._end
                if lasts or self._time.decided_by(reached) < end:
                    yield f"no line for {self._name} due {moment(due)}, {version.spec}"

    def _check_decision(self, lines: list[Line]) -> list[str]:
        """All that was decided at one moment. One explanation that fits is enough."""
        complaints: list[list[str]] = []
        for at in self._time.moments(lines[0].at):
            for version, times in zip(self._versions, self._may, strict=True):
                if version.asked - NEAR <= at <= version.end_stored + NEAR:
                    complaints.append([*self._complain(lines, version, times, at)])
        if not complaints:
            return [f"decided at a time at which there was no such schedule: {lines[0]}"]
        return min(complaints, key=len)

    def _complain(
        self, lines: list[Line], version: Version, times: set[float], at: float
    ) -> Iterator[str]:
        if self._time.was_away(at):
            yield f"decided while nobody was there: {lines[0]}"
        for line in lines:
            alarm = line.due + version.delay
            reached = self._time.reached(alarm, version.asked)
            if line.due not in times:
                yield f"it was not due: {line}, {version.spec}"
            elif line.at < alarm - 1e-5:
                yield f"early: {line}, {version.spec}"
            elif reached is None or at > self._time.decided_by(reached) + NEAR:
                yield f"late: {line}, {version.spec}"
        if all(line.reason == "disabled" for line in lines):
            if not self._maybe_disabled(at):
                yield f"it was enabled: {lines[0]}"
            return
        if self._surely_disabled(at):
            yield f"it was disabled: {lines[0]}"
        for line, wanted in zip(lines, _wanted(lines, version), strict=True):
            became = self._became(line)
            if became != wanted and not self._in_the_way(line, wanted):
                yield f"{became} instead of {wanted}: {line}, {version.spec}"

    def _became(self, line: Line) -> str:
        run = self._runs.get(line.run)
        if run is None:
            return line.outcome
        return line.outcome if run.due == line.due else "stood for"

    def _in_the_way(self, line: Line, wanted: str) -> bool:
        """Whether a run that should have been made could not be."""
        if line.outcome != "SKIPPED" or wanted == "MISSED":
            return False
        if line.reason.endswith("was decided before"):
            return len(self._versions) > 1
        words = line.reason.split()
        if self._workflow.overlap != "skip" or words[:2] != ["overlap:", "run"]:
            return False
        other = self._runs.get(words[2])
        return other is not None and other.workflow == self._workflow.name

    def _maybe_disabled(self, at: float) -> bool:
        return any(
            asked - LATE <= at <= end_done + NEAR
            for asked, _, _, end_done in self._workflow.disabled
        )

    def _surely_disabled(self, at: float) -> bool:
        """It is looked up a moment after the clock is."""
        return any(
            done + NEAR < at < end_asked - LATE for _, done, end_asked, _ in self._workflow.disabled
        )


def _wanted(lines: Sequence[Line], version: Version) -> Iterator[str]:
    """What each of the due times that were decided together becomes, by its policy for missed ones."""
    spec = version.spec
    late = [line.at - line.due - version.delay for line in lines]
    last = len(lines) - 1
    for number, seconds in enumerate(late):
        if number == last and seconds <= ON_TIME:
            yield "FIRED"
        elif spec.misfire == "skip" or seconds > max(ON_TIME, spec.grace):
            yield "MISSED"
        elif spec.misfire == "run_all" or number == last:
            yield "CAUGHT_UP"
        else:
            yield "stood for"
