"""A schedule as the daemon knows it: normalised, immutable, independent of how it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Gap(StrEnum):
    """What happens to a local time that a clock change skips."""

    SHIFT = "shift"
    """It is due once, right after the gap."""
    SKIP = "skip"


class Fold(StrEnum):
    """What happens to a local time that a clock change repeats."""

    ONCE = "once"
    """It is due the first time."""
    BOTH = "both"


class Misfire(StrEnum):
    """What happens to due times that passed while the daemon was not running."""

    SKIP = "skip"
    RUN_ONCE = "run_once"
    RUN_ALL = "run_all"


DEFAULT_MISFIRE_GRACE = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Exactly one of `cron`, `every`, `at` is set. `words` is the original phrase, if there was one.

    A definition has only the words: their meaning depends on the current time. Storing it sets one of the three, see
    `phrase_schedules.resolve_words`; until then it has no due time.

    `cron` is a crontab(5) expression of five fields, or of six with the seconds first, or `@reboot`; the other `@`
    names are already expanded. `every` is in seconds, counted from `start`, or from when the schedule was stored.
    `timezone` is a name of the IANA database; empty: the daemon's. Times are aware; `start` and `end` are both
    inclusive. `jitter` is the number of seconds over which runs are spread. At most `max_occurrences` times are due.
    `scope` selects the steps of its runs; empty: the workflow decides. `business_day` limits or moves its due times by
    `calendar`, see `business_days`: a mode, or the number of a business day in its month; empty: it does not.
    """

    cron: str = ""
    every: float | None = None
    at: datetime | None = None
    words: str = ""
    timezone: str = ""
    start: datetime | None = None
    end: datetime | None = None
    max_occurrences: int | None = None
    jitter: float = 0.0
    gap: Gap = Gap.SHIFT
    fold: Fold = Fold.ONCE
    misfire: Misfire = Misfire.RUN_ONCE
    misfire_grace: float = DEFAULT_MISFIRE_GRACE
    params: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    calendar: Mapping[str, Any] = field(default_factory=dict)
    business_day: str | int = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without defaults; `from_dict` returns an equal schedule."""
        described = {
            "cron": self.cron,
            "every": self.every,
            "at": _text(self.at),
            "words": self.words,
            "timezone": self.timezone,
            "start": _text(self.start),
            "end": _text(self.end),
            "max_occurrences": self.max_occurrences,
            "jitter": self.jitter,
            "gap": self.gap.value,
            "fold": self.fold.value,
            "misfire": self.misfire.value,
            "misfire_grace": self.misfire_grace,
            "params": dict(self.params),
            "scope": self.scope,
            "calendar": dict(self.calendar),
            "business_day": self.business_day,
        }
        return {name: value for name, value in described.items() if value != _DEFAULTS[name]}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Schedule:
        """The schedule that `to_dict` described; raises TypeError or ValueError on anything else.

        Missing fields get their defaults.
        """
        data = {**_DEFAULTS, **data}
        return Schedule(
            cron=data["cron"],
            every=data["every"],
            at=_moment(data["at"]),
            words=data["words"],
            timezone=data["timezone"],
            start=_moment(data["start"]),
            end=_moment(data["end"]),
            max_occurrences=data["max_occurrences"],
            jitter=data["jitter"],
            gap=Gap(data["gap"]),
            fold=Fold(data["fold"]),
            misfire=Misfire(data["misfire"]),
            misfire_grace=data["misfire_grace"],
            params=data["params"],
            scope=data["scope"],
            calendar=data["calendar"],
            business_day=data["business_day"],
        )


_DEFAULTS: Mapping[str, Any] = {
    "cron": "",
    "every": None,
    "at": None,
    "words": "",
    "timezone": "",
    "start": None,
    "end": None,
    "max_occurrences": None,
    "jitter": 0.0,
    "gap": Gap.SHIFT.value,
    "fold": Fold.ONCE.value,
    "misfire": Misfire.RUN_ONCE.value,
    "misfire_grace": DEFAULT_MISFIRE_GRACE,
    "params": {},
    "scope": "",
    "calendar": {},
    "business_day": "",
}


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class ClockChange(StrEnum):
    """Effect of a clock change on a due time."""

    NONE = ""
    SHIFTED = "shifted"
    """Its local time does not exist on that day."""
    REPEATED = "repeated"
    """Its local time comes twice, and this is the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One due time of a schedule, in UTC."""

    at: datetime
    change: ClockChange = ClockChange.NONE
