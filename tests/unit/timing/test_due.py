from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition.timing.cron import parse_cron
from toban.definition.timing.due import jitter_of, next_due, occurrences
from toban.definition.timing.schedule_spec import ClockChange, Due, Fold, Gap, Schedule

from .clock_walk import walk

TOKYO, NEW_YORK = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")
STORED = datetime(2025, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(schedule: Schedule, after: datetime, count: int = 3, zone: ZoneInfo = TOKYO) -> list[datetime]:
    dues = occurrences(schedule, zone=zone, after=after, stored_at=STORED)
    return [due.at for due in islice(dues, count)]


def test_every_counts_from_when_it_was_stored() -> None:
    schedule = Schedule(every=900)
    quarter = timedelta(minutes=15)
    assert first(schedule, STORED - timedelta(days=1)) == [STORED + n * quarter for n in (1, 2, 3)]
    assert first(schedule, STORED) == [STORED + n * quarter for n in (1, 2, 3)]
    assert first(schedule, STORED + quarter, 1) == [STORED + 2 * quarter]
    assert first(schedule, STORED + quarter - timedelta(microseconds=1), 1) == [STORED + quarter]


def test_every_counts_from_its_start_which_is_due() -> None:
    schedule = Schedule(every=7200, start=datetime(2025, 3, 9, 0, 30, tzinfo=NEW_YORK))
    assert first(schedule, STORED, zone=NEW_YORK) == [
        utc("2025-03-09 05:30"),
        utc("2025-03-09 07:30"),  # absolute time: the clock shows 03:30
        utc("2025-03-09 09:30"),
    ]
    assert first(schedule, utc("2025-03-09 05:30"), 1) == [utc("2025-03-09 07:30")]


def test_every_does_not_drift() -> None:
    schedule = Schedule(every=0.1)
    late = STORED + timedelta(days=10_000)
    assert first(schedule, late) == [late + timedelta(milliseconds=n) for n in (100, 200, 300)]


def test_every_ends_with_the_calendar() -> None:
    year = 365.25 * 86_400
    dues = list(occurrences(Schedule(every=100 * year), zone=TOKYO, after=utc("9800-01-01"), stored_at=STORED))
    assert [due.at.year for due in dues] == [9825, 9925]


def test_at_is_due_once() -> None:
    at = datetime(2026, 12, 1, 9, 0, tzinfo=TOKYO)
    due = next_due(Schedule(at=at), zone=NEW_YORK, after=STORED, stored_at=STORED)
    assert due == Due(at=utc("2026-12-01 00:00"))
    assert due is not None
    assert due.at.tzinfo is UTC
    assert next_due(Schedule(at=at), zone=NEW_YORK, after=at, stored_at=STORED) is None


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(cron="0 9 * * *", timezone="Asia/Tokyo"),
        Schedule(every=86_400, start=utc("2025-02-01 00:00")),
    ],
)
def test_start_and_end_are_inclusive(schedule: Schedule) -> None:
    nine = [utc(f"2025-02-0{day} 00:00") for day in (1, 2, 3)]
    bounded = Schedule(cron=schedule.cron, every=schedule.every, start=nine[0], end=nine[2])
    assert first(bounded, STORED, 10) == nine
    assert first(bounded, nine[0], 10) == nine[1:]
    assert first(bounded, nine[2], 10) == []


def test_a_time_outside_of_start_and_end_is_not_due() -> None:
    at = utc("2025-02-01 00:00")
    second = timedelta(seconds=1)
    assert first(Schedule(at=at, start=at, end=at), STORED) == [at]
    assert first(Schedule(at=at, start=at + second), STORED) == []
    assert first(Schedule(at=at, end=at - second), STORED) == []


def test_a_start_between_two_seconds() -> None:
    schedule = Schedule(cron="* * * * * *", start=utc("2025-02-01 00:00:00.5"))
    assert first(schedule, STORED, 1) == [utc("2025-02-01 00:00:01")]


def test_occurrences_are_not_counted_here() -> None:
    assert len(first(Schedule(every=60, max_occurrences=1), STORED, 5)) == 5


def test_reboot_is_at_no_time() -> None:
    assert first(Schedule(cron="@reboot"), STORED) == []


def test_the_calendar_has_an_end() -> None:
    new_year = Schedule(cron="0 0 1 1 *")
    assert first(new_year, utc("9997-06-01")) == [utc("9997-12-31 15:00")]
    assert first(new_year, utc("9999-12-31 23:59:59")) == []
    earliest = datetime.min.replace(tzinfo=UTC)
    assert first(new_year, earliest, 1, ZoneInfo("UTC")) == [utc("0002-01-01")]


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2025, 1, 1)  # noqa: DTZ001
    with pytest.raises(ValueError, match="2025-01-01 00:00:00 has no time zone"):
        occurrences(Schedule(every=60), zone=TOKYO, after=naive, stored_at=STORED)
    with pytest.raises(ValueError, match="has no time zone"):
        occurrences(Schedule(at=naive), zone=TOKYO, after=STORED, stored_at=STORED)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(cron="x"), Schedule(every=0)])
def test_what_cannot_be_due_is_refused_at_once(schedule: Schedule) -> None:
    with pytest.raises(ValueError, match=r"fields|interval"):
        occurrences(schedule, zone=TOKYO, after=STORED, stored_at=STORED)


def test_jitter_is_stable_and_spread() -> None:
    schedule = Schedule(cron="0 0 * * *", jitter=60)
    shares = [jitter_of(f"workflow-{n}/0", schedule) for n in range(200)]
    assert shares == [jitter_of(f"workflow-{n}/0", schedule) for n in range(200)]
    assert all(0 <= share < 60 for share in shares)
    assert min(shares) < 6
    assert max(shares) > 54
    assert jitter_of("nightly/0", schedule) == pytest.approx(9.8981, abs=0.001)
    assert jitter_of("nightly/0", Schedule(every=60)) == 0


def test_a_time_at_which_two_schedules_of_a_workflow_are_due_stays_one_time() -> None:
    weekdays, daily = (Schedule(cron=f"0 10 * * {days}", jitter=3600) for days in ("mon-fri", "*"))
    assert jitter_of("report/0", weekdays) == jitter_of("report/1", daily)
    assert jitter_of("report/0", weekdays) != jitter_of("reports/0", weekdays)


# Random expressions, against the slow way.


def element(low: int, high: int) -> st.SearchStrategy[str]:
    values = st.integers(low, high)
    ranges = st.tuples(values, values).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.one_of(ranges, st.just("*")), st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.one_of(values.map(str), ranges, steps)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    lists = st.lists(element(low, high), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), lists)


def expressions(hours: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    nth = st.lists(st.sampled_from(["mon#2", "5#5", "friL", "0L", "7#1", "wed"]), min_size=1, max_size=3).map(",".join)
    fields = (field(0, 59), hours, field(1, 31), field(1, 12), st.one_of(field(0, 7), nth))
    return st.tuples(*fields).map(" ".join).filter(is_ever_due)


def is_ever_due(text: str) -> bool:
    try:
        return bool(parse_cron(text))
    except ValueError as error:
        if "is never due" not in str(error):
            raise
        return False


def computed(schedule: Schedule, zone: ZoneInfo, after: datetime, until: datetime) -> Sequence[tuple[datetime, str]]:
    dues = occurrences(
        Schedule(cron=schedule.cron, gap=schedule.gap, fold=schedule.fold, end=until),
        zone=zone,
        after=after,
        stored_at=after,
    )
    return [(due.at, due.change.value) for due in dues]


@settings(max_examples=30)
@given(text=expressions(field(0, 23)), day=st.integers(0, 2000))
def test_any_expression_is_due_when_the_clock_shows_it(text: str, day: int) -> None:
    after = datetime(2023, 1, 1, tzinfo=TOKYO) + timedelta(days=day)
    until = after + timedelta(days=2)
    assert computed(Schedule(cron=text), TOKYO, after, until) == list(walk(text, TOKYO, after, until))


# (zone, an hour or so before the change)
EDGES = [
    ("America/New_York", "2025-03-09 05:30"),
    ("America/New_York", "2025-11-02 04:30"),
    ("Europe/Berlin", "2025-03-29 23:30"),
    ("Europe/Berlin", "2025-10-25 23:30"),
    ("Australia/Lord_Howe", "2025-10-04 14:10"),
    ("Australia/Lord_Howe", "2025-04-05 13:40"),
    ("America/Sao_Paulo", "2018-11-04 01:30"),
    ("America/Sao_Paulo", "2018-02-18 00:30"),
    ("Asia/Jerusalem", "2025-03-27 22:30"),
    ("Asia/Baku", "2015-10-24 22:30"),
    ("America/Goose_Bay", "2010-11-07 02:00"),  # 00:01 became 23:01 of the day before
]


@settings(max_examples=100)
@given(
    edge=st.sampled_from(EDGES),
    minutes=field(0, 59),
    hours=st.one_of(field(0, 5), st.sampled_from(["23,0,1", "0-23", "23"])),
    gap=st.sampled_from(Gap),
    fold=st.sampled_from(Fold),
)
def test_at_the_edges_the_policies_are_kept(
    edge: tuple[str, str], minutes: str, hours: str, gap: Gap, fold: Fold
) -> None:
    zone, before = ZoneInfo(edge[0]), utc(edge[1])
    schedule = Schedule(cron=f"{minutes} {hours} * * *", gap=gap, fold=fold)
    until = before + timedelta(hours=4)
    dues = computed(schedule, zone, before, until)
    assert dues == list(walk(schedule.cron, zone, before, until, gap=gap, fold=fold))
    assert all(earlier < later for (earlier, _), (later, _) in pairwise(dues))
    changes = [change for _, change in dues]
    assert changes.count(ClockChange.SHIFTED) <= (gap is Gap.SHIFT)
    if not parse_cron(schedule.cron).wild and fold is Fold.ONCE:
        walls = [at.astimezone(zone).replace(tzinfo=None) for at, _ in dues]
        assert len(set(walls)) == len(walls)


@settings(max_examples=60)
@given(
    edge=st.sampled_from(EDGES),
    text=expressions(field(0, 23)),
    fold=st.sampled_from(Fold),
    start=st.integers(0, 7200),
)
def test_asking_one_by_one_gives_the_same(edge: tuple[str, str], text: str, fold: Fold, start: int) -> None:
    """The daemon asks for the next one after each; a preview asks for ten at once."""
    zone, now = ZoneInfo(edge[0]), utc(edge[1]) + timedelta(seconds=start)
    schedule = Schedule(cron=text, fold=fold)
    at_once = list(islice(occurrences(schedule, zone=zone, after=now, stored_at=now), 8))
    assert at_once
    for due in at_once:
        assert next_due(schedule, zone=zone, after=now, stored_at=now) == due
        now = due.at
