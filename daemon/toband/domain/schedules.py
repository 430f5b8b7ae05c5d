"""What a schedule does about the times that are due: which start a run, which are skipped, which were missed.

Pure. The caller says what time it is and what is in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from zoneinfo import ZoneInfo

from toban.definition import Workflow
from toban.definition.timing.due import jitter_of, next_due, occurrences
from toban.definition.timing.model import Misfire, Schedule
from toban.definition.timing.resolving import resolve_words

ON_TIME = 5.0
"""Seconds by which a run may be late without having been missed."""
DECIDED_AT_ONCE = 5000
"""Due times of one schedule that are decided together after an absence."""
LINES_AT_ONCE = 1000
"""Lines of the ledger that they make; the first stands for all before it."""


class FireOutcome(StrEnum):
    """What became of a due time."""

    FIRED = "FIRED"
    CAUGHT_UP = "CAUGHT_UP"
    """It was missed, and a run was started for it later."""
    SKIPPED = "SKIPPED"
    """Something was in the way: `reason` says what."""
    MISSED = "MISSED"
    """Nobody was there, and no run was started for it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """A schedule that is stored. `next_due` is the first due time that nobody has decided about; None: there is none.

    One of a definition has the id `<workflow>/<index>`; one that is bound to a subject has an id of its own, and an
    `action`. `occurrences` counts the due times that were decided so far. `zone` is the name of its time zone.
    """

    id: str
    workflow: str
    index: int = 0
    spec: Schedule
    zone: str
    stored_at: datetime
    next_due: datetime | None
    occurrences: int = 0
    subject: str = ""
    action: str = ""
    dedupe_key: str = ""
    caller: str = ""
    cancelled_at: datetime | None = None

    @property
    def alarm(self) -> datetime | None:
        """When somebody has to look at it: the due time with its jitter."""
        if self.next_due is None:
            return None
        return self.next_due + timedelta(seconds=jitter_of(self.id, self.spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One line of the ledger: what became of one due time. There is one per schedule and due time, for ever.

    `more` is how many due times before it share its fate and have no line of their own.
    """

    schedule_id: str
    workflow: str
    due_at: datetime
    outcome: FireOutcome
    at: datetime
    reason: str = ""
    run_id: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A run to be started for a due time; `missed` are those before it that it stands for too."""

    due_at: datetime
    outcome: FireOutcome
    missed: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be saved at once. `fires` are of due times that start nothing; each start makes a line of its own."""

    fires: tuple[Fire, ...]
    starts: tuple[Start, ...]
    entry: ScheduleEntry


def entries_of(
    workflow: Workflow, *, zone: str, now: datetime, known: Mapping[str, Schedule]
) -> tuple[ScheduleEntry, ...]:
    """The schedules of a definition that is stored now. `zone` is for those that name none.

    Words become what they mean at this moment, or what `known` says that they meant when they were stored first. Raises
    PhraseError.
    """
    entries = []
    for index, spec in enumerate(workflow.schedules):
        name = spec.timezone or workflow.timezone or zone
        entry = ScheduleEntry(
            id=f"{workflow.name}/{index}",
            workflow=workflow.name,
            index=index,
            spec=_resolved(spec, name, now, known),
            zone=name,
            stored_at=now,
            next_due=None,
        )
        # `start` itself may be due, and so may this moment.
        entries.append(first_due(entry, now - timedelta(microseconds=1)))
    return tuple(entries)


def _resolved(spec: Schedule, zone: str, now: datetime, known: Mapping[str, Schedule]) -> Schedule:
    if not spec.words or spec.cron or spec.every is not None or spec.at is not None:
        return spec
    before = known.get(spec.words)
    if before is not None:
        return replace(spec, cron=before.cron, every=before.every, at=before.at)
    return resolve_words(spec, now=now, zone=ZoneInfo(zone))


def first_due(entry: ScheduleEntry, after: datetime) -> ScheduleEntry:
    """The entry with the first due time behind `after`."""
    if _exhausted(entry):
        return replace(entry, next_due=None)
    found = next_due(entry.spec, zone=ZoneInfo(entry.zone), after=after, stored_at=entry.stored_at)
    return replace(entry, next_due=found.at if found is not None else None)


def _never(_: datetime) -> str:
    return ""


def decide(
    entry: ScheduleEntry,
    *,
    now: datetime,
    in_the_way: str = "",
    shut: Callable[[datetime], str] = _never,
) -> Decision:
    """What becomes of everything that is due by now. `in_the_way` is why nothing may start; empty: nothing is.

    `shut` says why nothing was to start at a time that has passed: what was due then is not put off. After a very long
    absence not all may be decided at once: then the entry is due again at once.
    """
    old, times = _due_by(entry, now)
    if not old and not times:
        return Decision(fires=(), starts=(), entry=entry)
    decided = replace(entry, occurrences=entry.occurrences + len(old) + len(times))
    moved = first_due(decided, after=(times or old)[-1])
    if in_the_way:
        fires = _lines(entry, [*old, *times], FireOutcome.SKIPPED, now, in_the_way)
        return Decision(fires=fires, starts=(), entry=moved)
    skipped, times = _shut_out(entry, times, now, shut)
    # Of several only the last can be on time: nobody was there for those before it.
    on_time = times[-1:] if times and _late(entry, times[-1], now) <= ON_TIME else []
    missed = times[: len(times) - len(on_time)]
    starts, lost = _catch_up(entry, missed)
    for at in on_time:
        stood_for: tuple[datetime, ...] = ()
        if starts and entry.spec.misfire is Misfire.RUN_ONCE:
            # One run for all of them is enough, and this one is due anyway.
            stood_for = (*starts[0].missed, starts[0].due_at)
            starts = []
        starts.append(Start(due_at=at, outcome=FireOutcome.FIRED, missed=stood_for))
    fires = _lines(entry, [*old, *lost], FireOutcome.MISSED, now, _why_missed(entry))
    return Decision(fires=(*fires, *skipped), starts=tuple(starts), entry=moved)


def _shut_out(
    entry: ScheduleEntry, times: Sequence[datetime], now: datetime, shut: Callable[[datetime], str]
) -> tuple[list[Fire], list[datetime]]:
    """The lines of those at which nothing was to start, and the others."""
    jitter = timedelta(seconds=jitter_of(entry.id, entry.spec))
    skipped: list[Fire] = []
    left: list[datetime] = []
    for reason, same in groupby(times, key=lambda at: shut(at + jitter)):
        if reason:
            skipped += _lines(entry, [*same], FireOutcome.SKIPPED, now, reason)
        else:
            left += same
    return skipped, left


def at_boot(
    entry: ScheduleEntry, booted_at: datetime, now: datetime, in_the_way: str = ""
) -> Decision:
    """What becomes of `@reboot`: it is due when the machine starts, however much later the daemon does."""
    if in_the_way:
        fires = _lines(entry, [booted_at], FireOutcome.SKIPPED, now, in_the_way)
        return Decision(fires=fires, starts=(), entry=entry)
    start = Start(due_at=booted_at, outcome=FireOutcome.FIRED)
    return Decision(fires=(), starts=(start,), entry=entry)


def _catch_up(
    entry: ScheduleEntry, missed: Sequence[datetime]
) -> tuple[list[Start], list[datetime]]:
    """The runs that missed times still get, and the times that get none."""
    if entry.spec.misfire is Misfire.SKIP or not missed:
        return [], list(missed)
    caught_up = FireOutcome.CAUGHT_UP
    if entry.spec.misfire is Misfire.RUN_ALL:
        return [Start(due_at=at, outcome=caught_up) for at in missed], []
    return [Start(due_at=missed[-1], outcome=caught_up, missed=tuple(missed[:-1]))], []


def _due_by(entry: ScheduleEntry, now: datetime) -> tuple[list[datetime], list[datetime]]:
    """Due times that are too old to be caught up, and those that are not; some of either at most."""
    if entry.next_due is None or entry.alarm is None or entry.alarm > now:
        return [], []
    jitter = timedelta(seconds=jitter_of(entry.id, entry.spec))
    too_old = now - jitter - timedelta(seconds=max(ON_TIME, entry.spec.misfire_grace))
    times = [entry.next_due]
    for due in occurrences(
        entry.spec, zone=ZoneInfo(entry.zone), after=entry.next_due, stored_at=entry.stored_at
    ):
        if due.at + jitter > now or len(times) >= DECIDED_AT_ONCE:
            break
        times.append(due.at)
    if entry.spec.max_occurrences is not None:
        times = times[: max(0, entry.spec.max_occurrences - entry.occurrences)]
    old = [at for at in times if at < too_old]
    return old, times[len(old) :]


def _late(entry: ScheduleEntry, due_at: datetime, now: datetime) -> float:
    return (now - due_at).total_seconds() - jitter_of(entry.id, entry.spec)


def _exhausted(entry: ScheduleEntry) -> bool:
    most = entry.spec.max_occurrences
    return most is not None and entry.occurrences >= most


def _why_missed(entry: ScheduleEntry) -> str:
    if entry.spec.misfire is Misfire.SKIP:
        return "nobody was there, and `misfire: skip` says to leave it"
    return f"nobody was there for longer than its misfire_grace of {entry.spec.misfire_grace:g} s"


def _lines(
    entry: ScheduleEntry,
    times: Sequence[datetime],
    outcome: FireOutcome,
    now: datetime,
    reason: str,
) -> tuple[Fire, ...]:
    """A line for each of the last; the first of them also stands for those before it."""
    shown = times[-LINES_AT_ONCE:]
    return tuple(
        Fire(
            schedule_id=entry.id,
            workflow=entry.workflow,
            due_at=at,
            outcome=outcome,
            at=now,
            reason=reason,
            more=0 if number else len(times) - len(shown),
        )
        for number, at in enumerate(shown)
    )
