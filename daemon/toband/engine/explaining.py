"""The fire ledger in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from zoneinfo import ZoneInfo

from toban.definition.timing.due import describe
from toband.domain.schedules import Fire, FireOutcome, ScheduleEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known when somebody asks why. `asked` is the time they ask about; None: lately."""

    workflow: str
    enabled: bool
    draining: bool
    now: datetime
    asked: datetime | None
    entries: tuple[ScheduleEntry, ...]
    fires: tuple[Fire, ...]
    before: datetime | None
    after: datetime | None
    events: tuple[str, ...] = ()
    """The types of events that start it."""


def told(known: Known) -> tuple[str, ...]:
    """Sentences, the most telling first."""
    return tuple(_sentences(known))


def _sentences(known: Known) -> Iterator[str]:
    if not known.entries and not known.fires:
        if known.events:
            yield f"{known.workflow} has no schedule. {_events(known)}"
        else:
            yield f"{known.workflow} has no schedule: it runs only when somebody starts it."
        return
    zone = ZoneInfo(known.entries[0].zone if known.entries else "UTC")
    if known.asked is None:
        for entry in known.entries:
            yield f"It is to run {describe(entry.spec)}{_zone(entry)}{_subject(entry)}."
        if known.events:
            yield _events(known)
    for fire in known.fires:
        yield _fire(fire, zone)
    if known.asked is not None and not known.fires:
        yield from _nothing_there(known, known.asked, zone)
    elif not known.fires:
        yield "It has not been due yet."
    if not known.enabled:
        yield "It is disabled now: due times are skipped until it is enabled."
    if known.draining:
        yield "The daemon is draining now: due times are skipped until it resumes."
    if known.after is not None and known.asked is None:
        yield f"It is due next at {_time(known.after, zone)}."
    elif known.asked is None and known.entries:
        yield "It will not be due again."


def _nothing_there(known: Known, asked: datetime, zone: ZoneInfo) -> Iterator[str]:
    shown = _time(asked, zone)
    if asked > known.now:
        yield f"{shown} has not come yet."
    else:
        yield f"It was not due at {shown}, or longer ago than the ledger is kept."
    nearest = [_time(at, zone) for at in (known.before, known.after) if at is not None]
    if len(nearest) == 1:
        yield f"The nearest due time is {nearest[0]}."
    elif nearest:
        yield f"The nearest due times are {' and '.join(nearest)}."


def _fire(fire: Fire, zone: ZoneInfo) -> str:
    due = _time(fire.due_at, zone)
    more = f" So were {fire.more} due times before it." if fire.more else ""
    match fire.outcome:
        case FireOutcome.FIRED:
            late = (fire.at - fire.due_at).total_seconds()
            return f"It was due at {due}, and {_made(fire)}, {late:.1f} s later."
        case FireOutcome.CAUGHT_UP:
            started = _time(fire.at, zone)
            return f"It was due at {due} and nobody was there; {_made(fire)} for it at {started}."
        case FireOutcome.SKIPPED:
            return f"It was due at {due} and was skipped: {fire.reason}.{more}"
        case FireOutcome.MISSED:
            return f"It was due at {due} and was missed: {fire.reason}.{more}"
        case _:
            assert_never(fire.outcome)


def _made(fire: Fire) -> str:
    """One of a subject is told of as an event, which starts the run."""
    return f"run {fire.run_id} was started" if fire.run_id else f"{fire.reason} was emitted"


def _events(known: Known) -> str:
    types = ", ".join(known.events)
    return (
        f"It is started by events ({types}): `toban events list` shows those that came, and "
        f"`toban events resolve {known.events[0]}` which of them would start it."
    )


def _subject(entry: ScheduleEntry) -> str:
    return f", for {entry.subject}" if entry.subject else ""


def _zone(entry: ScheduleEntry) -> str:
    return "" if entry.zone in describe(entry.spec) else f" ({entry.zone})"


def _time(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
