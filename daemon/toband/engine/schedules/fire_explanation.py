"""Explains the fire ledger in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import assert_never
from zoneinfo import ZoneInfo

from toban.definition.timing.cron import REBOOT
from toban.definition.timing.due import describe
from toban.quantity_text import duration_text
from toband.domain.emitted_events import Emitted, EventState
from toband.domain.not_started import NotStarted
from toband.domain.run_model import Run, Trigger
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.engine.errors import ZoneGoneError
from toband.engine.schedules.due_times import Upcoming, due_at_boot, jitter_by, zone_of

_LATE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A due time near the requested one, and the zone of its schedule; empty: unknown."""

    at: datetime
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FireFacts:
    """The facts for an explanation. `asked` is the time that the client asked about; None: lately.

    `due` is the due time that is meant, if it is not decided yet; `before` and `after` are those around it.
    """

    workflow: str
    enabled: bool
    draining: bool
    now: datetime
    asked: datetime | None
    entries: tuple[ScheduleEntry, ...]
    """Includes those that have run out."""
    fires: tuple[Fire, ...]
    due: Upcoming | None = None
    before: Near | None = None
    after: Upcoming | None = None
    events: tuple[str, ...] = ()
    """The types of events that start it."""
    emitted: Mapping[str, Emitted] = field(default_factory=dict)
    """The events emitted for due times, by id."""
    runs: Mapping[str, Run] = field(default_factory=dict)
    """The runs of `fires` and of `emitted`, by id, if they are still stored."""
    locked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The locks that runs of `fires` wait for, by run."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """Zones of schedules that have ended and are not among `entries`."""


def explain_fires(known: FireFacts) -> tuple[str, ...]:
    """Sentences, the most informative first."""
    return tuple(_sentences(known))


def _sentences(known: FireFacts) -> Iterator[str]:
    if not known.entries and not known.fires:
        if known.events:
            yield f"{known.workflow} has no schedule. {_events(known)}"
        else:
            yield f"{known.workflow} has no schedule: it runs only when started by hand."
        return
    if known.asked is None:
        for entry in known.entries:
            yield _schedule(entry, known.now)
        if known.events:
            yield _events(known)
    zones = {**known.zones, **{entry.id: entry.zone for entry in known.entries}}
    for fire in known.fires:
        started = _started(known, fire)
        zone = zones.get(fire.schedule_id) or _any_zone(known)
        run = known.runs.get(fire.run_id)
        backfilled = run is not None and run.trigger is Trigger.BACKFILL
        made = _made(known, fire)
        yield _backfilled(known, fire, zone) if backfilled else _fire(fire, zone, made, started)
    if known.asked is not None and not known.fires:
        yield from _undecided(known, known.asked)
    elif not known.fires:
        yield _not_yet(known)
    for entry in known.entries:
        try:
            zone_of(entry)
        except ZoneGoneError as error:
            yield f"It cannot start: {error}."
    if not known.enabled:
        yield "It is disabled now: due times are skipped until it is enabled."
    if known.draining:
        yield "The daemon is draining now: due times are skipped until it resumes."
    if known.asked is None:
        yield from _next(known)


def _schedule(entry: ScheduleEntry, now: datetime) -> str:
    rule = f"{describe(entry.spec)}{_zone(entry)}{_jitter(entry)}{_subject(entry)}"
    if _is_to_come(entry, now):
        return f"Runs {rule}."
    if entry.spec.at is not None:
        return f"Was scheduled {rule}: that time has passed."
    again = "will not be due again" if entry.occurrences else "will never be due"
    return f"Was scheduled {rule}: it {again}."


def _not_yet(known: FireFacts) -> str:
    if _to_come(known):
        return "It has not been due yet."
    return "It was never due, or the ledger no longer has it."


def _to_come(known: FireFacts) -> bool:
    return any(_is_to_come(entry, known.now) for entry in known.entries)


def _is_to_come(entry: ScheduleEntry, now: datetime) -> bool:
    return entry.next_due is not None or due_at_boot(entry, now)


def _next(known: FireFacts) -> Iterator[str]:
    if known.after is not None:
        due = _time(known.after.due, known.after.zone)
        said = "is due next" if known.after.due > known.now else "was due"
        yield f"It {said} at {due}{_start(known.after)}."
    if any(due_at_boot(entry, known.now) for entry in known.entries):
        yield "It is due at the next boot of the machine."
    if known.entries and not _to_come(known):
        yield "It will not be due again."


def _undecided(known: FireFacts, asked: datetime) -> Iterator[str]:
    """Sentences about a time that has no line in the ledger."""
    shown = _time(asked, _any_zone(known))
    if known.due is not None:
        due = _time(known.due.due, known.due.zone)
        if known.due.due <= known.now:
            yield f"It was due at {due}{_start(known.due)}; it has not been decided yet."
        else:
            then = "then" if known.due.due == asked else "near that"
            yield f"It is due {then}, at {due}{_start(known.due)}."
        return
    if asked > known.now:
        yield f"It is not scheduled at {shown}."
    else:
        yield f"It was not due at {shown}, or the ledger no longer has that time."
    nearest = []
    if known.before is not None:
        nearest.append(_time(known.before.at, known.before.zone or _any_zone(known)))
    if known.after is not None:
        nearest.append(_time(known.after.due, known.after.zone))
    if len(nearest) == 1:
        yield f"The nearest due time is {nearest[0]}."
    elif nearest:
        yield f"The nearest due times are {' and '.join(nearest)}."


def _start(due: Upcoming) -> str:
    """A remark about the start of its run, if there is one to make."""
    later = due.at - due.due
    jitter = f", its run {duration_text(later)} later (jitter)" if later else ""
    return f"{jitter}, but no run starts then: {due.blackout}" if due.blackout else jitter


def _fire(fire: Fire, zone: str, made: str, started: str) -> str:
    """`made` says what was made for it, and `started` what its event started."""
    due = _time(fire.due_at, zone)
    more = f" The same happened to {fire.more} earlier due times." if fire.more else ""
    match fire.outcome:
        case FireOutcome.FIRED:
            late = fire.at - fire.due_at
            when = f"{duration_text(late)} late" if late >= _LATE else "on time"
            return f"It was due at {due}; {made} {when}{started}."
        case FireOutcome.CAUGHT_UP:
            then = _time(fire.at, zone)
            also = f" It also stands for {fire.more} earlier due times." if fire.more else ""
            caught_up = f"{made} for it at {then}{started}"
            return f"It was due at {due}, when the daemon was not running; {caught_up}.{also}"
        case FireOutcome.SKIPPED:
            return f"It was due at {due} and was skipped: {_why(fire.reason)}.{more}"
        case FireOutcome.MISSED:
            return f"It was due at {due} and was missed: {_why(fire.reason)}.{more}"
        case _:
            assert_never(fire.outcome)


def _backfilled(known: FireFacts, fire: Fire, zone: str) -> str:
    due, then = _time(fire.due_at, zone), _time(fire.at, zone)
    return f"It was due at {due}; a backfill started run {_name(known, fire.run_id)} for it at {then}."


def _name(known: FireFacts, run_id: str) -> str:
    run = known.runs.get(run_id)
    return run.name if run is not None else run_id


def _why(reason: NotStarted | None) -> str:
    return reason.text if reason is not None else ""


def _made(known: FireFacts, fire: Fire) -> str:
    """The due time of a subject schedule emits an event, which starts the run."""
    return f"run {_name(known, fire.run_id)} was started" if fire.run_id else f"event {fire.event_id} was emitted"


def _started(known: FireFacts, fire: Fire) -> str:
    """The locks that its run waits for, or what the event of a subject schedule started of the workflow.

    Empty if there are none, and where that is unknown or no longer stored.
    """
    event = known.emitted.get(fire.event_id)
    if event is None:
        locks = known.locked.get(fire.run_id, ())
        return f", and waits for {'lock' if len(locks) == 1 else 'locks'} {', '.join(locks)}" if locks else ""
    for run in event.runs:
        if run.workflow == known.workflow:
            name = _name(known, run.run_id)
            return f"; it started run {name}" if run.run_id else f"; not started: {_why(run.reason)}"
    if event.state is EventState.PENDING:
        return "; its runs are not decided yet"
    return f"; nothing was started: {event.reason}" if event.reason else ""


def _events(known: FireFacts) -> str:
    types = ", ".join(known.events)
    return (
        f"It is started by events ({types}): `toban events list` shows received events, and "
        f"`toban events resolve {known.events[0]}` which events would start it."
    )


def _subject(entry: ScheduleEntry) -> str:
    return f", for {entry.subject}" if entry.subject else ""


def _zone(entry: ScheduleEntry) -> str:
    if entry.spec.cron == REBOOT or entry.zone in describe(entry.spec):
        return ""
    return f" ({entry.zone})"


def _jitter(entry: ScheduleEntry) -> str:
    later = timedelta() if entry.spec.cron == REBOOT else jitter_by(entry)
    return f", {duration_text(later)} later each time (jitter)" if later else ""


def _any_zone(known: FireFacts) -> str:
    """The zone of one of its schedules, where it is unclear which one is meant."""
    around = [each.zone for each in (known.due, known.after, known.before) if each is not None]
    return next((zone for zone in around if zone), known.entries[0].zone if known.entries else "")


def _time(at: datetime, zone: str) -> str:
    return at.astimezone(_clock(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def _clock(zone: str) -> tzinfo:
    """UTC if the zone is empty or no longer exists."""
    try:
        return ZoneInfo(zone) if zone else UTC
    except (KeyError, OSError, ValueError):
        return UTC
