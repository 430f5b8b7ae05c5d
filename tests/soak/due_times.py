"""Compares the ledger of a week with the due times that the schedules had, computed independently of the product."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from soak.flows import Flow, Rule
from unit.timing.clock_walk import Expression, passed_over

_MINUTE = timedelta(minutes=1)


class Walk:
    """What the clocks of a zone show from one time to another, each minute."""

    def __init__(self, zone: str, after: datetime, until: datetime) -> None:
        place = ZoneInfo(zone)
        self._by_minute: dict[int, list[tuple[datetime, datetime, int]]] = defaultdict(list)
        self._jumps: list[tuple[datetime, list[datetime]]] = []
        now = after.replace(second=0, microsecond=0)
        while now <= until:
            if now > after:
                local = now.astimezone(place)
                wall = local.replace(tzinfo=None)
                self._by_minute[wall.minute].append((now, wall, local.fold))
                if passed := list(passed_over(now, _MINUTE, place)):
                    self._jumps.append((now, passed))
            now += _MINUTE

    def due(self, cron: str) -> Iterator[datetime]:
        expression = Expression(cron)
        for now, wall, fold in self._by_minute[int(expression.minute)]:
            if expression.at(wall) and (expression.follows_the_clock or not fold):
                yield now
        if not expression.follows_the_clock:
            yield from (now for now, passed in self._jumps if any(map(expression.at, passed)))


class DueTimes:
    """The due times of all rules between two moments."""

    def __init__(self, after: datetime, until: datetime) -> None:
        self._after = after
        self._until = until
        self._walks: dict[str, Walk] = {}

    def of(self, rule: Rule) -> set[datetime]:
        after = max(self._after, rule.since)
        until = min(self._until, rule.until or self._until)
        return {at for at in self._all(rule) if after < at <= until}

    def _all(self, rule: Rule) -> Iterator[datetime]:
        written = rule.written
        if "every" in written:
            at, every = datetime.fromisoformat(written["start"]), timedelta(hours=int(written["every"][:-1]))
            at += every * max(0, (self._after - at) // every)
            while at <= self._until:
                yield at
                at += every
            return
        zone = written["timezone"]
        if zone not in self._walks:
            self._walks[zone] = Walk(zone, self._after, self._until)
        yield from self._walks[zone].due(written["cron"])


def differences(database: Path, flows: Sequence[Flow], after: datetime, until: datetime) -> tuple[int, list[str]]:
    """The number of due times in (after, until], and what is wrong with their ledger lines and runs."""
    wrong: list[str] = []
    count = 0
    due_times = DueTimes(after, until)
    first, last = _micros(after), _micros(until)
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        lines: dict[str, set[int]] = defaultdict(set)
        query = "SELECT schedule_id, due_at FROM fires WHERE due_at > ? AND due_at <= ? AND schedule_id LIKE '%/%'"
        for schedule_id, due_at in connection.execute(query, (first, last)):
            lines[schedule_id].add(due_at)
        for flow in flows:
            expected = {_micros(at) for rule in flow.rules for at in due_times.of(rule)}
            found = lines.pop(f"{flow.name}/0", set())
            count += len(expected)
            wrong += [f"{flow.name} was due at {_shown(at)}: not in the ledger" for at in sorted(expected - found)]
            wrong += [f"{flow.name} was not due at {_shown(at)}: in the ledger" for at in sorted(found - expected)]
        wrong += [f"unknown schedule in the ledger: {each}" for each in lines]
        twice = (
            "SELECT schedule, scheduled_at, count(*) FROM runs WHERE scheduled_at > ? AND scheduled_at <= ?"
            " AND triggered_by = 'SCHEDULE' GROUP BY schedule, scheduled_at HAVING count(*) > 1"
        )
        for schedule_id, at, number in connection.execute(twice, (first, last)):
            wrong.append(f"{schedule_id} started {number} runs for {_shown(at)}")
        without = (
            "SELECT schedule_id, due_at FROM fires LEFT JOIN runs ON runs.id = fires.run_id WHERE due_at > ?"
            " AND due_at <= ? AND fires.run_id <> '' AND outcome = 'FIRED' AND runs.id IS NULL"
        )
        for schedule_id, at in connection.execute(without, (first, last)):
            wrong.append(f"{schedule_id} has no run for {_shown(at)}, although the ledger names it")
    connection.close()
    return count, wrong


def _micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _shown(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
