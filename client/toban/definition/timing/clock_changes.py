"""What a clock change does to the due times of a crontab expression, whose local times it skips or repeats.

Due times follow Vixie cron's rule, with a choice:

- An expression whose second, minute or hour begins with `*` (`*/5 * * * *`, `0 */2 * * *`, `*/10 2 * * *`)
  follows the clock: it is due whenever the clock shows a matching time. Times in a gap never come; repeated times
  are due twice. The policies do not apply to it.
- Any other is due at fixed times. Those in a gap are due together, once, at the first moment after it
  (`gap: shift`), or not at all (`skip`). Repeated ones are due the first time (`fold: once`), or both times (`both`).

All due times differ: a time that is shifted to another due time is merged with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from toban.definition.timing.business_days import BusinessCron
from toban.definition.timing.cron import DAY_SECONDS, LAST_YEAR, Cron
from toban.definition.timing.schedule_spec import ClockChange, Due, Fold, Gap, Schedule

# Local time and UTC alike are whole seconds here: `date.toordinal()` * 86,400 + seconds of the day.
_ORIGIN = datetime(1, 1, 1, tzinfo=UTC)
_FIRST_YEAR = 2  # the hours of the first may lie before the calendar
# More than any UTC offset, together with any change of it.
_FAR = 2 * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A period, [start, end), with a constant UTC offset. `before`: the period before it."""

    start: int
    end: int
    offset: int
    before: int


def crontab_dues(cron: Cron | BusinessCron, schedule: Schedule, zone: ZoneInfo, after: datetime) -> Iterator[Due]:
    """The times after `after` at which the expression is due, in that zone."""
    shifts = not cron.wild and schedule.gap is Gap.SHIFT
    repeats = cron.wild or schedule.fold is Fold.BOTH
    position = max(_seconds(after) + 1, _year_start(_FIRST_YEAR))
    while (near := cron.next_local(position - _FAR)) is not None:
        # No local time before `near` matches: skip the years without a match.
        position = max(position, near - _FAR)
        year = _moment(position).year
        if year > LAST_YEAR:
            return
        for piece in _pieces(zone, year):
            if piece.end <= position:
                continue
            if shifts and piece.start >= position and _shifts_to_start(cron, piece):
                yield Due(at=_moment(piece.start), change=ClockChange.SHIFTED)
            local = max(position, piece.start) + piece.offset
            if not repeats:
                local = max(local, piece.start + piece.before)
            while (found := cron.next_local(local)) is not None:
                if found >= piece.end + piece.offset:
                    break
                again = found < piece.start + piece.before
                yield Due(
                    at=_moment(found - piece.offset),
                    change=ClockChange.REPEATED if again else ClockChange.NONE,
                )
                local = found + 1
        position = _year_start(year + 1)


def _shifts_to_start(cron: Cron | BusinessCron, piece: _Piece) -> bool:
    """Whether a time in the gap before this period would match, and its first moment does not match itself."""
    begin, end = piece.start + piece.before, piece.start + piece.offset
    if begin >= end:
        return False
    found = cron.next_local(begin)
    return found is not None and found < end and cron.next_local(end) != end


def zone_digest(zone: ZoneInfo, year: int) -> str:
    """Changes with the clock changes of that year and of the two years that follow."""
    pieces = [_pieces.__wrapped__(zone, each) for each in range(year, year + 3)]
    return hashlib.sha256(repr(pieces).encode()).hexdigest()[:16]


@lru_cache(maxsize=512)
def _pieces(zone: ZoneInfo, year: int) -> tuple[_Piece, ...]:
    """The periods of a year of UTC. No clock is changed twice within a day."""
    begin, end = _year_start(year), _year_start(year + 1)
    starts = [(begin, _offset(zone, begin - 1), _offset(zone, begin))]
    for low in range(begin, end, DAY_SECONDS):
        high = low + DAY_SECONDS - 1
        old, new = starts[-1][2], _offset(zone, high)
        if old != new:
            starts.append((_change_between(zone, max(begin, low - 1), high), old, new))
    ends = [*(start for start, _, _ in starts[1:]), end]
    return tuple(
        _Piece(start=start, end=stop, offset=offset, before=before)
        for (start, before, offset), stop in zip(starts, ends, strict=True)
    )


def _change_between(zone: ZoneInfo, low: int, high: int) -> int:
    """The first second with the offset of `high`; that of `low` differs."""
    old = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == old:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: ZoneInfo, seconds: int) -> int:
    offset = _moment(seconds).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


def _seconds(moment: datetime) -> int:
    """Of a time in UTC, rounded down."""
    return (moment - _ORIGIN) // timedelta(seconds=1) + DAY_SECONDS


def _moment(seconds: int) -> datetime:
    return _ORIGIN + timedelta(seconds=seconds - DAY_SECONDS)


def _year_start(year: int) -> int:
    return _seconds(datetime(year, 1, 1, tzinfo=UTC))
