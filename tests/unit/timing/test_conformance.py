"""The table of due times, case by case, also against a well-known library."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from ruamel.yaml import YAML

from toban.definition.timing.cron import MACROS
from toban.definition.timing.due import occurrences
from toban.definition.timing.schedule_spec import Fold, Gap, Schedule

CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    Path(__file__).with_name("conformance.yaml").read_text(encoding="utf-8")
)
# Not of the locale.
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def name_of(case: dict[str, Any]) -> str:
    return " ".join(case[key] for key in ("cron", "zone", "from", "gap", "fold") if key in case)


def from_of(case: dict[str, Any]) -> datetime:
    """Without an offset in the table it is a local time that exists once."""
    moment = datetime.fromisoformat(case["from"])
    return moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(case["zone"]))


def shown(moment: datetime, zone: ZoneInfo, *, seconds: bool) -> str:
    local = moment.astimezone(zone)
    day = f"{local:%Y-%m-%d} {WEEKDAYS[local.weekday()]}"
    return f"{day} {local:%H:%M:%S} " if seconds else f"{day} {local:%H:%M} "


def due_times(case: dict[str, Any]) -> list[str]:
    zone = ZoneInfo(case["zone"])
    schedule = Schedule(cron=case["cron"], gap=Gap(case.get("gap", "shift")), fold=Fold(case.get("fold", "once")))
    after = from_of(case)
    dues = occurrences(schedule, zone=zone, after=after, stored_at=after)
    seconds = len(case["cron"].split()) == 6
    return [
        f"{shown(due.at, zone, seconds=seconds)}{offset_of(due.at, zone)} {due.change}".strip()
        for due in islice(dues, len(case["due"]))
    ]


def offset_of(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).isoformat()[-6:]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_due_times(case: dict[str, Any]) -> None:
    assert due_times(case) == case["due"]


def test_the_table_is_large_and_says_nothing_twice() -> None:
    assert len(CASES) >= 180
    assert all(3 <= len(case["due"]) <= 10 for case in CASES)
    assert [name for name, count in Counter(map(name_of, CASES)).items() if count > 1] == []
    assert {case["cron"] for case in CASES} >= set(MACROS)
    changed = Counter(
        (case["zone"], due.split()[-1]) for case in CASES for due in case["due"] if due.split()[-1].isalpha()
    )
    for zone in ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe"):
        assert changed[zone, "shifted"] >= 4
        assert changed[zone, "repeated"] >= 4


def test_apscheduler_would_fail_it() -> None:
    """Why it is not asked: its week begins on Monday, both day fields must match, a time in a gap is lost."""
    triggers = pytest.importorskip("apscheduler.triggers.cron")
    wrong = set()
    for case in CASES:
        zone = ZoneInfo(case["zone"])
        try:
            trigger = triggers.CronTrigger.from_crontab(case["cron"], timezone=zone)
            # It would count the moment itself, which is only another way to ask.
            now = from_of(case).astimezone(zone) + timedelta(microseconds=1)
            previous, times = None, []
            for _ in case["due"]:
                now = previous = trigger.get_next_fire_time(previous, now)
                times.append(f"{shown(now, zone, seconds=False)}{offset_of(now, zone)}")
        except (ValueError, AttributeError):
            times = []
        if times != [" ".join(due.split()[:4]) for due in case["due"]]:
            wrong.add(case["cron"])
    # Sunday as 7; Friday as 5; the 13th or a Friday; a time in a gap; a name.
    assert wrong >= {"0 9 * * 7", "0 9 * * 5", "0 0 13 * 5", "30 2 * * *", "@daily"}
