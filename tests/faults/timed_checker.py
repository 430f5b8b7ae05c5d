"""Compares the ledger of due times and the runs with the schedules and with the disturbances."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from faults.timed import Timed, Version
from faults.timed_runs import Started, Witnessed
from faults.timeline import LATE, NEAR, Timeline, maybe_in, moment, surely_in
from helpers.daemon import Daemon
from toban.cli.render.reason_text import not_started
from toban.v1 import workflow_pb2

ON_TIME = 5.0
"""Seconds by which a run may be late and is not one that was missed."""
BUSY = 60.0
"""Seconds by which it may be if the daemon was there, and had too much to do."""
STORED = 1.0
"""Seconds that pass at most between a decision and what the ledger says of when it was."""
TURNS = 4.0
"""Seconds that one that catches up waits at most for others that do."""
WITH_RUN = ("FIRED", "CAUGHT_UP")
WAITING_MOST = 100
"""Runs of one workflow that may wait for their turn."""
SHUT = "blackout until "


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
class Ledger:
    lines: Sequence[Line]
    runs: Mapping[str, Started]
    end: float
    """When the last of it was waited for: what had to be decided by then was."""
    read: float
    """When it was read: more may have been decided since."""
    told: Witnessed = field(default_factory=Witnessed)
    """What the steps say themselves."""

    def of(self, schedule: str) -> list[Line]:
        return sorted((line for line in self.lines if line.schedule == schedule), key=lambda line: line.due)


def _due(line: Line) -> float:
    return line.due


def line_of(fire: workflow_pb2.Fire) -> Line:
    return Line(
        schedule=fire.schedule_id,
        due=fire.due_at.ToMicroseconds() / 1e6,
        outcome=workflow_pb2.FireOutcome.Name(fire.outcome).removeprefix("FIRE_OUTCOME_"),
        at=fire.at.ToMicroseconds() / 1e6,
        reason=not_started(fire),
        run=fire.run_id,
    )


def lines_of(daemon: Daemon, workflow: str) -> list[Line]:
    lines: list[Line] = []
    request = workflow_pb2.ListFiresRequest(workflow=workflow, page_size=1000)
    while True:
        page = daemon.workflows.ListFires(request, timeout=20)
        lines += [line_of(fire) for fire in page.fires]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return lines


def check_timed(
    workflows: Sequence[Timed], ledger: Ledger, line_time: Timeline, others: Sequence[str] = ()
) -> list[str]:
    """Everything that is wrong, in words. `others` are schedules that are looked at elsewhere."""
    found = [*_check_runs(ledger)]
    known = set(others)
    for workflow in workflows:
        for index, versions in enumerate(workflow.versions):
            schedule = f"{workflow.name}/{index}"
            known.add(schedule)
            found += _Schedule(workflow, versions, schedule, ledger, line_time).check()
    found += [f"nobody made this schedule: {line}" for line in ledger.lines if line.schedule not in known]
    return found


def missing(workflows: Sequence[Timed], ledger: Ledger, line_time: Timeline, *, at_all: bool = False) -> list[str]:
    """Due times that must have been decided, and have no line. `at_all`: those that may still be decided count too."""
    return [
        text
        for workflow in workflows
        for index, versions in enumerate(workflow.versions)
        for text in _Schedule(workflow, versions, f"{workflow.name}/{index}", ledger, line_time).missing(at_all=at_all)
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
        self._versions_beside = workflow.versions
        self._name = name
        self._runs = ledger.runs
        self._names = {f"{run.workflow}#{run.number}": run for run in ledger.runs.values()}
        self._told = ledger.told
        self._end = ledger.end
        self._read = ledger.read
        self._time = line_time
        self._lines = ledger.of(name)
        self._has_line = {line.due for line in self._lines}
        # If one became due while it was stored, all counting begins there.
        self._may = [
            (self._due(version, version.asked - NEAR), self._due(version, version.stored)) for version in versions
        ]

    def _due(self, version: Version, since: float) -> set[float]:
        until = self._time.highest(since, min(version.end_stored, self._read) + LATE)
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
        """Of the last version nothing may be missing at the end; of others what was decided just in time may be.

        And so may those that waited for their turn.
        """
        for version, (earlier, later) in zip(self._versions, self._may, strict=True):
            end = min(version.end_asked, self._end)
            lasts = at_all and version.end_asked > self._end
            waited = False
            # Of those that are counted only what is due either way must be decided.
            for due in sorted(earlier & later):
                if due in self._has_line:
                    waited = False
                    continue
                alarm = due + version.delay
                reached = self._time.reached(alarm, version.stored)
                if reached is None or reached > end:
                    continue
                if lasts:
                    yield f"no line for {self._name} due {moment(due)}, {version.spec}"
                elif self._decided_by(version, due, version.stored, end) >= end:
                    waited = True
                elif not waited:
                    yield f"no line for {self._name} due {moment(due)}, {version.spec}"

    def _decided_by(self, version: Version, due: float, since: float, at: float) -> float:
        """Until when it must be. What is caught up waits for its turn, the run before it, and the end of a blackout."""
        alarm = due + version.delay

        def from_then(moment: float) -> float:
            """If it waited until then. The clock may have been set back meanwhile."""
            return self._time.decided_by(alarm, max(since, moment))

        latest = from_then(since)
        if version.spec.misfire == "skip":
            return latest
        latest = max(latest, from_then(latest + TURNS - LATE))
        if version.spec.misfire == "run_all":
            before = max((line for line in self._lines if line.due < due), key=_due, default=None)
            turns = len(self._versions_beside) * (self._workflow.seconds + LATE)
            for moment_before in self._time.moments(before.at) if before is not None else ():
                if moment_before <= at + NEAR:
                    latest = max(latest, from_then(moment_before + turns))
        for _ in range(10):
            ends = [
                probe + end - self._time.shown(probe)
                for probe in (latest - LATE - TURNS, latest - LATE, latest)
                if probe < math.inf and (end := self._workflow.shut_until(version.spec.zone, self._time.shown(probe)))
            ]
            later = max((from_then(end + TURNS) for end in ends), default=latest)
            if later <= latest:
                break
            latest = later
        return latest

    def _check_decision(self, lines: list[Line]) -> list[str]:
        """All that was decided at one moment. One explanation that fits is enough."""
        complaints: list[list[str]] = []
        for at in self._time.moments(lines[0].at):
            for version, counted in zip(self._versions, self._may, strict=True):
                if version.asked - NEAR <= at <= version.end_stored + NEAR:
                    complaints += [[*self._complain(lines, version, each, at)] for each in counted]
        if not complaints:
            return [f"decided at a time at which there was no such schedule: {lines[0]}"]
        return min(complaints, key=len)

    def _complain(self, lines: list[Line], version: Version, times: set[float], at: float) -> Iterator[str]:
        if self._time.was_away(at):
            yield f"decided while nobody was there: {lines[0]}"
        for line in lines:
            alarm = line.due + version.delay
            if line.due not in times:
                yield f"it was not due: {line}, {version.spec}"
            elif line.at < alarm - 1e-5:
                yield f"early: {line}, {version.spec}"
            elif at > self._decided_by(version, line.due, version.asked, at) + NEAR:
                yield f"late: {line}, {version.spec}"
        reasons = {line.reason for line in lines}
        if reasons == {"disabled"}:
            if not maybe_in(self._workflow.disabled, at):
                yield f"it was enabled: {lines[0]}"
            return
        if surely_in(self._workflow.disabled, at):
            yield f"it was disabled: {lines[0]}"
        if reasons == {"draining"}:
            if not maybe_in(self._time.drained, at):
                yield f"nobody had drained it: {lines[0]}"
            return
        if surely_in(self._time.drained, at):
            yield f"it was draining: {lines[0]}"
        for line, wanted in zip(lines, self._wanted(lines, version, times, at), strict=True):
            became = self._became(line)
            if became not in wanted and not self._in_the_way(line, wanted, at):
                yield f"{became} instead of {' or '.join(wanted)}: {line}, {version.spec}"

    def _became(self, line: Line) -> str:
        run = self._runs.get(line.run)
        if run is not None and run.due != line.due:
            return "stood for"
        if line.outcome == "SKIPPED" and line.reason.startswith(SHUT):
            until = datetime.fromisoformat(line.reason.removeprefix(SHUT))
            return f"{SHUT}{moment(until.timestamp())}"
        return line.outcome

    def _wanted(self, lines: Sequence[Line], version: Version, times: set[float], at: float) -> Iterator[list[str]]:
        """What each of the due times that were decided together may become."""
        now = lines[0].at
        for line in lines:
            alarm = line.due + version.delay
            was_there = self._was_there(alarm, at)
            found: list[str] = []
            # It was decided a moment before it was stored, and others may have become due meanwhile.
            stored = STORED + self._time.held_up(at - LATE, at)
            for decided in (now, max(alarm, now - stored)):
                is_last = line.due >= self._last_due(version, times, decided)
                found.append(self._of_present(version, alarm, decided, is_last))
                if not was_there:
                    found.append(self._of_absent(version, alarm, decided, is_last))
            yield list(dict.fromkeys(found))

    def _last_due(self, version: Version, times: set[float], now: float) -> float:
        """Others may have been decided already, before the clock was set back: those are due again, too."""
        alarms = (due + version.delay for due in times if due + version.delay <= now)
        last = max((alarm for alarm in alarms if not self._shut(version, alarm)), default=0.0)
        return last - version.delay

    def _of_present(self, version: Version, alarm: float, now: float, is_last: bool) -> str:
        """Due times while a daemon was running, perhaps a busy one."""
        spec, late = version.spec, now - alarm
        shut = self._shut(version, alarm)
        if shut:
            return shut
        if late <= BUSY and (is_last or spec.misfire == "skip"):
            return "FIRED"
        if late > max(BUSY, spec.grace) or spec.misfire == "skip":
            return "MISSED"
        return "CAUGHT_UP" if is_last or spec.misfire == "run_all" else "stood for"

    def _of_absent(self, version: Version, alarm: float, now: float, is_last: bool) -> str:
        spec, late = version.spec, now - alarm
        if late > max(ON_TIME, spec.grace):
            return "MISSED"
        shut = self._shut(version, alarm)
        if shut:
            return shut
        if is_last and late <= ON_TIME:
            return "FIRED"
        if spec.misfire == "skip":
            return "MISSED"
        return "CAUGHT_UP" if is_last or spec.misfire == "run_all" else "stood for"

    def _was_there(self, alarm: float, at: float) -> bool:
        """Whether a daemon was certainly running between these times of its clock."""
        return any(
            before <= at + NEAR and not self._time.broken(before - ON_TIME, at) for before in self._time.moments(alarm)
        )

    def _shut(self, version: Version, at: float) -> str:
        until = self._workflow.shut_until(version.spec.zone, at)
        return "" if until is None else f"{SHUT}{moment(until)}"

    def _in_the_way(self, line: Line, wanted: Sequence[str], at: float) -> bool:
        """Whether a run that should have been made at that moment could not be."""
        if line.outcome != "SKIPPED" or not {*wanted} & {*WITH_RUN, "stood for"}:
            return False
        if line.reason.endswith("was decided before"):
            return len(self._versions) > 1
        if line.reason.startswith("the queue of workflow "):
            return self._workflow.overlap == "queue" and self._waiting(at) >= WAITING_MOST
        words = line.reason.split()
        if self._workflow.overlap != "skip" or words[:2] != ["overlap:", "run"]:
            return False
        other = self._names.get(words[2])
        if other is None or other.workflow != self._workflow.name or not self._made(other, at):
            return False
        return at <= self._time.noticed_by(self._told.over(other.id, self._time.cut))

    def _made(self, run: Started, at: float) -> bool:
        """Those that are decided together are made a moment later."""
        return any(made <= at + LATE for made in self._time.moments(run.created))

    def _waiting(self, at: float) -> int:
        """How many of its runs may have waited for their turn then."""
        return sum(
            run.workflow == self._workflow.name
            and self._made(run, at)
            and self._told.began.get(run.id, [at])[0] >= at - LATE
            for run in self._runs.values()
        )
