"""Random schedules and their due times, computed independently of the product."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from faults.timeline import Stretch, moment
from unit.timing.clock_walk import walk

ZONES = ("UTC", "Asia/Tokyo", "Asia/Kathmandu", "America/St_Johns")
CRONS = ("*/2 * * * * *", "1-59/3 * * * * *", "5,10,20,35,40,55 * * * * *", "*/4 * * * * *")
REBOOT = "@reboot"
BUSINESS_DAYS = ("only", "never", "next", "previous")
MISFIRES = ("skip", "run_once", "run_all")
BLACKOUTS = ("20 * * * * */6s", "0 */2 * * * */15s", "40 1-59/2 * * * */10s")
"""None of them touches the next window of its own; those that name minutes depend on the time zone."""
SAYS = 'at=""; until [ "$at" ]; do at=$(date +%%s.%%N); done; echo "%s $TOBAN_RUN_ID $at" >> "%s"'
"""A line of the witness: what happened, to which run, and when by the right clock.

A signal may end the program that tells the time, and then there is no line.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Midnight:
    """The midnight between two dates of a zone, and a calendar in which one of both is a holiday.

    `file` is that calendar as a file for the first of them.
    """

    at: float
    file: str

    @classmethod
    def near(cls, at: float, directory: Path) -> Midnight:
        """Of a zone in which midnight is at the next full hour."""
        made = cls(at=(at // 3600 + 1) * 3600.0, file=str(directory / "holidays"))
        Path(made.file).write_text(json.dumps(made._holiday(-1)))
        return made

    @property
    def zone(self) -> str:
        hour = int(self.at // 3600 % 24)
        return f"Etc/GMT+{hour}" if hour <= 12 else f"Etc/GMT-{24 - hour}"

    def _date(self, days: int) -> date:
        """The first date after midnight is 0, the last before it is -1."""
        return (moment(self.at).astimezone(ZoneInfo(self.zone)) + timedelta(days=days)).date()

    def _holiday(self, off: int) -> dict[str, Any]:
        """A calendar without a weekend, as far as these days are concerned."""
        return {
            "holidays": [self._date(off).isoformat()],
            "workdays": [self._date(days).isoformat() for days in range(-5, 6) if days != off],
        }

    def written(self, cron: str, business_day: str) -> dict[str, Any]:
        """The expression is due on one date only if that has to move."""
        off, days = {"only": (-1, "*"), "never": (-1, "*"), "next": (-1, "="), "previous": (0, "=")}[business_day]
        if days == "=":
            days = str(self._date(off).day)
        fields = cron.split()
        calendar: dict[str, Any] = {"file": self.file} if off == -1 else self._holiday(off)
        return {"cron": " ".join([*fields[:3], days, *fields[4:]]), "calendar": calendar, "business_day": business_day}

    def is_due(self, at: float, business_day: str) -> bool:
        """Only within some days of midnight."""
        return (at >= self.at) == (business_day in ("only", "next"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Exactly one of `cron`, `every` and `at` is set; `every` counts from `start`. Times are seconds."""

    cron: str = ""
    every: float = 0.0
    start: float = 0.0
    at: float = 0.0
    zone: str = "UTC"
    misfire: str = "run_once"
    grace: float = 3600.0
    jitter: float = 0.0
    most: int | None = None
    calendar: Midnight | None = None
    business_day: str = ""
    """One of BUSINESS_DAYS, with `calendar`; `cron` is due every day."""

    def written(self) -> dict[str, Any]:
        if self.cron == REBOOT:
            return {"cron": REBOOT}  # nothing of it can be missed
        made: dict[str, Any] = {
            "timezone": self.zone,
            "misfire": self.misfire,
            "misfire_grace": f"{self.grace:g}s",
        }
        if self.calendar:
            made |= self.calendar.written(self.cron, self.business_day)
        elif self.cron:
            made["cron"] = self.cron
        elif self.every:
            made |= {"every": f"{self.every:g}s", "start": moment(self.start).isoformat()}
        else:
            made["at"] = moment(self.at).isoformat()
        if self.jitter:
            made["jitter"] = f"{self.jitter:g}s"
        if self.most is not None:
            made["max_occurrences"] = self.most
        return made

    def due(self, since: float, until: float) -> list[float]:
        """From `since` on, which may be due itself, until `until`. At most `most` of them."""
        if self.cron:
            before = moment(since) - timedelta(microseconds=1)
            times = walk(self.cron, ZoneInfo(self.zone), before, moment(until))
            found = [at.timestamp() for at, _ in times]
            if self.calendar:
                found = [at for at in found if self.calendar.is_due(at, self.business_day)]
        elif self.every:
            count = int((until - self.start) / self.every) + 1
            every = (self.start + number * self.every for number in range(count + 1))
            found = [at for at in every if since <= at <= until]
        else:
            found = [self.at] if since <= self.at <= until else []
        return found[: self.most]


@dataclass(slots=True, kw_only=True)
class Version:
    """A schedule from when it was stored until another took its place: between `asked` and `stored`, each."""

    spec: Spec
    asked: float
    stored: float
    end_asked: float
    end_stored: float
    delay: float = 0.0
    """Its part of the jitter."""


@dataclass(slots=True, kw_only=True)
class Timed:
    """A workflow with schedules."""

    name: str
    overlap: str
    seconds: float
    """How long its step takes."""
    witness: str = "/dev/null"
    """The file that its step says in when it begins and ends; no daemon knows it."""
    blackout: tuple[str, ...] = ()
    closed: tuple[tuple[str, str], ...] = ()
    """The windows of the daemon itself, and the zone of each."""
    versions: list[list[Version]] = field(default_factory=list)
    """By schedule, those that were stored first come first."""
    disabled: list[Stretch] = field(default_factory=list)

    def definition(self, specs: Sequence[Spec], note: str = "x") -> str:
        windows = {"blackout": list(self.blackout)} if self.blackout else {}
        made: Mapping[str, Any] = {
            "name": self.name,
            "description": note,
            "overlap": self.overlap,
            **windows,
            "schedule": [spec.written() for spec in specs],
            "steps": {"only": {"run": self._script()}},
        }
        return json.dumps(made)

    def _script(self) -> str:
        began, done, signalled = (SAYS % (letter, self.witness) for letter in "BEC")
        waits = f"sleep {self.seconds:g} & wait $!; " if self.seconds else ""
        return f"trap '{signalled}; exit 1' TERM; {began}; {waits}{done}"

    def shut_until(self, zone: str, at: float) -> float | None:
        """The end of the windows that cover this time, one after the other, of a schedule in that zone."""
        windows = (*((text, zone) for text in self.blackout), *self.closed)
        until = None
        while ends := [end for text, place in windows if (end := _window(text, place, at)) is not None]:
            until = at = max(ends)
        return until


@lru_cache(100_000)
def _window(text: str, zone: str, at: float) -> float | None:
    """The end of the window that covers this time: its first moment is in it, its last is not."""
    cron, _, length = text.rpartition("/")
    seconds = float(length.removesuffix("s"))
    begins = [begin for begin, _ in walk(cron, ZoneInfo(zone), moment(at - seconds), moment(at))]
    return begins[-1].timestamp() + seconds if begins else None


def random_spec(rng: random.Random, shown: float, midnight: Midnight) -> Spec:
    """One that is due soon, and again and again, at a clock that shows that; near `midnight` if it has a calendar."""
    how: dict[str, Any] = {
        "zone": rng.choice(ZONES),
        "misfire": rng.choice(MISFIRES),
        "grace": rng.choice((8.0, 20.0, 3600.0)),
        "jitter": rng.choice((0.0, 0.0, 1.5)),
        "most": rng.choice((None, None, None, rng.randint(2, 6))),
    }
    kind = rng.random()
    if kind < 0.3:
        return Spec(cron=rng.choice(CRONS), **how)
    if kind < 0.5:
        how |= {"zone": midnight.zone, "calendar": midnight, "business_day": rng.choice(BUSINESS_DAYS)}
        return Spec(cron=rng.choice(CRONS), **how)
    if kind < 0.85:
        # Half a second is exact in both notations of a time.
        every = rng.choice((1.5, 2.0, 2.5, 4.0))
        return Spec(every=every, start=float(int(shown)) - rng.randint(0, 20) + 0.5, **how)
    return Spec(at=float(int(shown)) + rng.randint(2, 20), **(how | {"most": None}))
