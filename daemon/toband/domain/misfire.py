"""Misfire policy: which due times of a schedule start a run, which are skipped, and which were missed.

Pure. The caller passes the time, since when the daemon has been running, and any reason not to start runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import groupby
from zoneinfo import ZoneInfo

from toban.definition.timing.due import jitter_of, occurrences
from toban.definition.timing.schedule_spec import Misfire
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.schedule_model import (
    Fire,
    FireOutcome,
    ScheduledStart,
    ScheduleEntry,
    first_due,
    is_exhausted,
)

ON_TIME = 5.0
"""Seconds by which a run may be late without having been missed."""
BUSY_MOST = 60.0
"""The same if the daemon was running at the due time, and was only slow."""
DECIDED_AT_ONCE = 5000
"""Due times of one schedule that are decided together after an absence."""
EACH_AT_ONCE = 100
"""The same if each gets a run of its own."""
STARTED_AT_ONCE = 20
"""Runs of one schedule that are started together."""
LINES_AT_ONCE = 1000
"""Ledger lines per outcome, and missed times that a run lists, at most; the first represents all earlier ones."""

DAEMON_DOWN = "the daemon was not running"


def _never(_: datetime) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The conditions for a decision.

    `here_since` is the time since which the daemon has been running without a break; None: since now. `in_the_way` is
    why nothing may start at all; empty: nothing prevents it. `shut` says why nothing was to start at a given time:
    times that were due then are not put off. `catch_up` is how many runs for missed times may start now, and
    `waited_for` is the reason why the others may not. `one_by_one`: runs for each missed time wait until the previous
    one has ended, and it has not ended yet.
    """

    now: datetime
    here_since: datetime | None = None
    in_the_way: NotStarted | None = None
    shut: Callable[[datetime], NotStarted | None] = _never
    catch_up: int = STARTED_AT_ONCE
    waited_for: str = ""
    one_by_one: bool = False

    @property
    def here(self) -> datetime:
        return self.now if self.here_since is None else min(self.here_since, self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Intermediate result over very many due times: the last of those that one run will represent, how many more there
    were before these, and the lines of others.
    """

    times: tuple[datetime, ...] = ()
    more: int = 0
    fires: tuple[Fire, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision, saved at once. `fires` are due times that start nothing; each start adds its own line.

    `waits`: the entry is still due, with missed times to be caught up later. If something is `carried`, there is
    nothing to save yet: the caller continues with it and the entry.
    """

    fires: tuple[Fire, ...]
    starts: tuple[ScheduledStart, ...]
    entry: ScheduleEntry
    waits: bool = False
    carried: Carried | None = None

    @property
    def catches_up(self) -> bool:
        return any(start.outcome is FireOutcome.CAUGHT_UP for start in self.starts)


class _Fate(Enum):
    MISSED = auto()
    SKIPPED = auto()
    AWAY = auto()
    """The daemon was not running; the due time may be caught up."""
    LATE = auto()
    """The daemon was running, but could not start it then; the due time may be caught up."""
    ON_TIME = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A due time, its outcome so far, and the reason."""

    at: datetime
    fate: _Fate
    reason: NotStarted | None = None

    @property
    def open(self) -> bool:
        """Whether it may still get a run."""
        return self.fate not in (_Fate.MISSED, _Fate.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passed:
    """Due times that have passed. `whole`: there are no more."""

    entry: ScheduleEntry
    dues: Sequence[_Due]
    whole: bool

    def entry_after(self, count: int) -> ScheduleEntry:
        """The entry once the first `count` are decided."""
        if not count:
            return self.entry
        decided = replace(self.entry, occurrences=self.entry.occurrences + count)
        if count < len(self.dues):
            return replace(decided, next_due=self.dues[count].at)
        return first_due(decided, after=self.dues[-1].at)


def decide(entry: ScheduleEntry, given: Circumstances, carried: Carried | None = None) -> Decision:
    """Decides every time that is due by now.

    A single call may not decide everything: then the entry is due again at once, or `waits`, or something is `carried`.
    """
    times, whole = _due_by(entry, given.now)
    if given.in_the_way:
        dues = [_Due(at=at, fate=_Fate.SKIPPED, reason=given.in_the_way) for at in times]
        return _decided(_Passed(entry=entry, dues=dues, whole=whole), given)
    passed = _Passed(entry=entry, dues=_dues(entry, times, whole, given), whole=whole)
    if entry.spec.misfire is Misfire.RUN_ONCE:
        return _decide_once(passed, given, carried)
    return _decide_each(passed, given)


def _decide_once(passed: _Passed, given: Circumstances, carried: Carried | None) -> Decision:
    """One run for all of them, at the latest due time. If that one is on time, the run is no extra run."""
    found = [due.at for due in passed.dues if due.open]
    on_time = passed.whole and any(due.fate is _Fate.ON_TIME for due in passed.dues)
    if carried is None and found:
        first = next(number for number, due in enumerate(passed.dues) if due.open)
        waits = not on_time and given.catch_up <= 0
        if waits or (first and not passed.whole):
            return _decided(passed, given, count=first, waits=waits)
    carried = carried or Carried()
    found = [*carried.times, *found]
    if found and not passed.whole:
        return Decision(
            fires=(),
            starts=(),
            entry=passed.entry_after(len(passed.dues)),
            carried=Carried(
                times=tuple(found[-LINES_AT_ONCE:]),
                more=carried.more + max(0, len(found) - LINES_AT_ONCE),
                fires=(*carried.fires, *_lines(passed.entry, passed.dues, given.now, most=1)),
            ),
        )
    starts = []
    if found:
        missed = found[:-1][-LINES_AT_ONCE:]
        start = ScheduledStart(
            due_at=found[-1],
            outcome=FireOutcome.FIRED if on_time else FireOutcome.CAUGHT_UP,
            missed=tuple(missed),
            more=carried.more + len(found) - 1 - len(missed),
        )
        starts.append(start)
    return _decided(passed, given, starts=starts, before=carried.fires)


def _decide_each(passed: _Passed, given: Circumstances) -> Decision:
    """A run for each, in order; of the missed times, as many as may be caught up now."""
    starts: list[ScheduledStart] = []
    left = given.catch_up
    for number, due in enumerate(passed.dues):
        if not due.open:
            continue
        if len(starts) >= STARTED_AT_ONCE:
            return _decided(passed, given, starts=starts, count=number)
        if due.fate is _Fate.ON_TIME:
            starts.append(ScheduledStart(due_at=due.at, outcome=FireOutcome.FIRED))
            continue
        if left <= 0 or (due.fate is _Fate.AWAY and given.one_by_one):
            return _decided(passed, given, starts=starts, count=number, waits=True)
        left -= 1
        starts.append(ScheduledStart(due_at=due.at, outcome=FireOutcome.CAUGHT_UP))
    return _decided(passed, given, starts=starts)


def _decided(
    passed: _Passed,
    given: Circumstances,
    *,
    starts: Sequence[ScheduledStart] = (),
    before: tuple[Fire, ...] = (),
    count: int | None = None,
    waits: bool = False,
) -> Decision:
    """Decides the first `count` of them, or all. `before` are the lines of earlier ones."""
    some = passed.dues[:count]
    return Decision(
        fires=(*before, *_lines(passed.entry, some, given.now)),
        starts=tuple(starts),
        entry=passed.entry_after(len(some)),
        waits=waits,
    )


def at_boot(entry: ScheduleEntry, booted_at: datetime, now: datetime, in_the_way: NotStarted | None = None) -> Decision:
    """Decides `@reboot`: it is due when the machine starts, however much later the daemon starts."""
    spec = entry.spec
    early = spec.start is not None and booted_at < spec.start
    over = spec.end is not None and booted_at > spec.end
    if early or over or is_exhausted(entry):
        return Decision(fires=(), starts=(), entry=entry)
    after = replace(entry, occurrences=entry.occurrences + 1)
    if in_the_way:
        due = _Due(at=booted_at, fate=_Fate.SKIPPED, reason=in_the_way)
        return Decision(fires=_lines(entry, [due], now), starts=(), entry=after)
    start = ScheduledStart(due_at=booted_at, outcome=FireOutcome.FIRED)
    return Decision(fires=(), starts=(start,), entry=after)


# ------------------------------------------------------------------------------------------------ due times


def _due_by(entry: ScheduleEntry, now: datetime) -> tuple[list[datetime], bool]:
    """The due times up to a limit, and whether these are all."""
    if entry.next_due is None or entry.alarm is None or entry.alarm > now:
        return [], True
    most = EACH_AT_ONCE if entry.spec.misfire is Misfire.RUN_ALL else DECIDED_AT_ONCE
    left = None
    if entry.spec.max_occurrences is not None:
        left = max(0, entry.spec.max_occurrences - entry.occurrences)
    jitter = entry.alarm - entry.next_due
    times = [entry.next_due]
    for due in occurrences(entry.spec, zone=ZoneInfo(entry.zone), after=entry.next_due, stored_at=entry.stored_at):
        if due.at + jitter > now or (left is not None and len(times) >= left):
            break
        if len(times) >= most:
            return times, False
        times.append(due.at)
    return times[:left], True


def _dues(entry: ScheduleEntry, times: Sequence[datetime], whole: bool, given: Circumstances) -> list[_Due]:
    jitter = timedelta(seconds=jitter_of(entry.id, entry.spec))
    dues = [_fate(entry, at, at + jitter, given) for at in times]
    last = max((number for number, due in enumerate(dues) if due.open), default=-1)
    if whole and last >= 0 and _is_near(times[last] + jitter, given):
        # Of several due times just before the daemon started, only the last can be on time.
        dues[last] = _Due(at=times[last], fate=_Fate.ON_TIME)
    match entry.spec.misfire:
        case Misfire.RUN_ALL:
            # In order, and not all at once.
            keep = last if whole else -1
            return [
                replace(due, fate=_Fate.LATE) if due.fate is _Fate.ON_TIME and number != keep else due
                for number, due in enumerate(dues)
            ]
        case Misfire.SKIP:
            return [_left_out(due) for due in dues]
        case Misfire.RUN_ONCE:
            return dues


def _fate(entry: ScheduleEntry, at: datetime, alarm: datetime, given: Circumstances) -> _Due:
    near, present = _is_near(alarm, given), alarm >= given.here
    grace = timedelta(seconds=_grace(entry))
    too_late = not near and given.now - alarm > grace
    if too_late and not present:
        return _Due(at=at, fate=_Fate.MISSED, reason=_too_late(entry, alarm + grace, given))
    reason = given.shut(alarm)
    if reason:
        return _Due(at=at, fate=_Fate.SKIPPED, reason=reason)
    if too_late:
        return _Due(at=at, fate=_Fate.MISSED, reason=_too_late(entry, alarm + grace, given))
    if not present:
        return _Due(at=at, fate=_Fate.AWAY)
    return _Due(at=at, fate=_Fate.ON_TIME if near else _Fate.LATE)


def _grace(entry: ScheduleEntry) -> float:
    return max(ON_TIME, entry.spec.misfire_grace)


def grace_left(entry: ScheduleEntry, now: datetime) -> float:
    """Seconds until the first undecided time of an entry that is due becomes too late to start a run."""
    assert entry.alarm is not None
    return _grace(entry) - (now - entry.alarm).total_seconds()


def replaced_at(entry: ScheduleEntry, now: datetime) -> datetime | None:
    """When the run of the next due time replaces a run for missed times; None if it does not."""
    return first_due(entry, after=now).alarm if entry.spec.misfire is Misfire.RUN_ONCE else None


def _is_near(alarm: datetime, given: Circumstances) -> bool:
    """Whether the daemon was running at that time or just after it, and is not very late now."""
    late = (given.now - alarm).total_seconds()
    return late <= BUSY_MOST and alarm >= given.here - timedelta(seconds=ON_TIME)


def _left_out(due: _Due) -> _Due:
    if due.fate is _Fate.AWAY:
        reason = DAEMON_DOWN
    elif due.fate is _Fate.LATE:
        reason = f"it could not be started for {BUSY_MOST:g} s"
    else:
        return due
    return replace(due, fate=_Fate.MISSED, reason=NotStarted(NotStartedReason.MISFIRE_SKIP, reason))


def _too_late(entry: ScheduleEntry, until: datetime, given: Circumstances) -> NotStarted:
    grace = f"{entry.spec.misfire_grace:g} s"
    if until < given.here:
        if entry.spec.misfire is Misfire.SKIP:
            return NotStarted(NotStartedReason.MISFIRE_SKIP, DAEMON_DOWN)
        return NotStarted(NotStartedReason.MISFIRE_GRACE, f"{DAEMON_DOWN} for longer than {grace}")
    waited_for = given.waited_for or "other runs came first"
    return NotStarted(NotStartedReason.MISFIRE_GRACE, f"not caught up within {grace}: {waited_for}")


# ------------------------------------------------------------------------------------------------ lines


def _lines(entry: ScheduleEntry, dues: Sequence[_Due], now: datetime, most: int = LINES_AT_ONCE) -> tuple[Fire, ...]:
    """Lines for due times that start nothing: one for each of the last; the first also represents all earlier ones."""
    fires: list[Fire] = []
    for (fate, reason), group in groupby(dues, key=lambda due: (due.fate, due.reason)):
        same = list(group)
        if not same[0].open:
            outcome = FireOutcome.MISSED if fate is _Fate.MISSED else FireOutcome.SKIPPED
            shown = same[-most:]
            fires += (
                Fire(
                    schedule_id=entry.id,
                    workflow=entry.workflow,
                    due_at=due.at,
                    outcome=outcome,
                    at=now,
                    reason=reason,
                    more=0 if number else len(same) - len(shown),
                )
                for number, due in enumerate(shown)
            )
    return tuple(fires)
