"""Times in words: the table of phrases, and properties of any text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from toban.definition.timing.cron import LAST_YEAR, parse_cron
from toban.definition.timing.due import next_due
from toban.definition.timing.phrases.english_numbers import NUMBER_WORDS
from toban.definition.timing.phrases.english_tokens import ACTIONS as ENGLISH_ACTIONS
from toban.definition.timing.phrases.english_tokens import WORDS as ENGLISH_WORDS
from toban.definition.timing.phrases.japanese_tokens import ACTIONS as JAPANESE_ACTIONS
from toban.definition.timing.phrases.japanese_tokens import ENDINGS, NUMERALS
from toban.definition.timing.phrases.japanese_tokens import WORDS as JAPANESE_WORDS
from toban.definition.timing.phrases.phrase import (
    EXAMPLES,
    LONGEST_PHRASE,
    PhraseError,
    Understood,
    interpret,
)
from toban.definition.timing.schedule_spec import Schedule

GROUPS: list[dict[str, Any]] = YAML(typ="safe").load(
    Path(__file__).with_name("phrases.yaml").read_text(encoding="utf-8")
)
UNDERSTOOD = [(group, case) for group in GROUPS for case in group["understood"]]
REFUSED = [(group, case) for group in GROUPS for case in group["refused"]]

TOKYO = ZoneInfo("Asia/Tokyo")
NEW_YORK = ZoneInfo("America/New_York")
MONDAY = datetime(2026, 11, 16, 10, 20, tzinfo=TOKYO)


def said(group: dict[str, Any], phrase: str) -> Understood:
    zone = ZoneInfo(group["zone"])
    return interpret(phrase, now=local(group["now"], zone), zone=zone, calendar=group.get("calendar"))


def local(text: str, zone: ZoneInfo) -> datetime:
    """An offset tells two times apart that the clocks show alike."""
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=zone) if at.tzinfo is None else at.astimezone(zone)


def name_of(value: dict[str, Any]) -> str:
    return str(value["say"] if "say" in value else value["zone"])


def test_the_table_is_large_and_has_no_phrase_twice() -> None:
    japanese = [case for _, case in UNDERSTOOD if not case["say"].isascii()]
    assert len(japanese) >= 60
    assert len(UNDERSTOOD) - len(japanese) >= 60
    assert len(REFUSED) >= 100
    times = Counter((group["now"], case["say"]) for group, case in UNDERSTOOD + REFUSED)
    assert [key for key, count in times.items() if count > 1] == []


@pytest.mark.parametrize(("group", "case"), UNDERSTOOD, ids=name_of)
def test_a_phrase_is_understood(group: dict[str, Any], case: dict[str, Any]) -> None:
    zone = ZoneInfo(group["zone"])
    at = local(case["at"], zone).astimezone(UTC) if "at" in case else None
    expected = Understood(
        schedule=Schedule(
            at=at,
            cron=case.get("cron", ""),
            every=case.get("every"),
            words=case["say"],
            timezone=group["zone"],
            calendar=group["calendar"] if "business_day" in case or "uses_calendar" in case else {},
            business_day=case.get("business_day", ""),
        ),
        recurring=at is None,
        text=case["text"],
        rest=case.get("rest", ""),
    )
    assert said(group, case["say"]) == expected


@pytest.mark.parametrize(("group", "case"), REFUSED, ids=name_of)
def test_a_phrase_is_refused_and_the_problem_named(group: dict[str, Any], case: dict[str, Any]) -> None:
    with pytest.raises(PhraseError) as refused:
        said(group, case["say"])
    assert refused.value.text == f'cannot read the time "{case["say"]}": {case["because"]}'
    assert refused.value.examples


@pytest.mark.parametrize("phrase", [each for some in EXAMPLES.values() for each in some])
def test_what_the_errors_recommend_can_be_read(phrase: str) -> None:
    assert interpret(phrase, now=MONDAY, zone=TOKYO).rest == ""


def test_an_error_says_what_can_be_read_in_the_same_language() -> None:
    with pytest.raises(PhraseError, match=r"examples: 3日後の朝9時, ") as refused:
        interpret("いつか", now=MONDAY, zone=TOKYO)
    assert refused.value.text == 'cannot read the time "いつか": "いつか" is not understood'
    with pytest.raises(PhraseError, match=r"examples: in 3 days at 9am, "):
        interpret("some day", now=MONDAY, zone=TOKYO)


@pytest.mark.parametrize("action", JAPANESE_ACTIONS)
def test_every_action_in_japanese_may_follow_a_time(action: str) -> None:
    for ending in ("", *ENDINGS):
        read = interpret(f"明日の9時に{action}{ending}", now=MONDAY, zone=TOKYO)
        assert (read.rest, read.text) == (action + ending, "2026-11-17 (火) 09:00 Asia/Tokyo")


@pytest.mark.parametrize("action", ENGLISH_ACTIONS)
def test_every_action_in_english_may_stand_on_either_side_of_a_time(action: str) -> None:
    for phrase in (f"tomorrow {action}", f"{action} tomorrow", f"Tomorrow, to {action}."):
        read = interpret(phrase, now=MONDAY, zone=TOKYO)
        assert (read.rest, read.text) == (action, "2026-11-17 (Tue) 09:00 Asia/Tokyo")


def test_a_time_from_now_is_not_early() -> None:
    now = MONDAY.replace(second=30, microsecond=1)
    read = interpret("30分後", now=now, zone=TOKYO)
    assert read.schedule.at == MONDAY + timedelta(minutes=30, seconds=31)
    assert read.text == "2026-11-16 (月) 10:50:31 Asia/Tokyo"
    read = interpret("in 3 days", now=now, zone=TOKYO)
    assert read.schedule.at == MONDAY + timedelta(days=3, seconds=31)


def test_the_present_time_may_be_given_in_any_zone_but_must_have_one() -> None:
    read = interpret("明日の9時", now=MONDAY.astimezone(NEW_YORK), zone=TOKYO)
    assert read == interpret("明日の9時", now=MONDAY, zone=TOKYO)
    with pytest.raises(ValueError, match="needs a time zone"):
        interpret("明日の9時", now=MONDAY.replace(tzinfo=None), zone=TOKYO)


@pytest.mark.parametrize("phrase", ["at 1:30am", "today at 1:30am", "november 1 at 1:30am"])
def test_of_two_times_that_clocks_show_the_first_that_is_to_come_is_meant(phrase: str) -> None:
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    for now, meant in (
        (first - timedelta(minutes=20), first),
        (first, first + timedelta(hours=1)),
        (first + timedelta(minutes=40), first + timedelta(hours=1)),
    ):
        assert interpret(phrase, now=now, zone=NEW_YORK).schedule.at == meant


def test_a_long_text_is_refused_and_not_repeated_at_length() -> None:
    with pytest.raises(PhraseError, match="longer than 200 characters") as refused:
        interpret("明日" * 10_000, now=MONDAY, zone=TOKYO)
    assert len(str(refused.value)) < 2 * LONGEST_PHRASE + 200


@pytest.mark.parametrize("blank", [" ", "\n", "\u3000"])
def test_blanks_count_as_any_other_character_of_a_text(blank: str) -> None:
    words = "明日の9時"
    longest = words + blank * (LONGEST_PHRASE - len(words))
    assert interpret(longest, now=MONDAY, zone=TOKYO).schedule.words == longest
    with pytest.raises(PhraseError, match="longer than 200 characters"):
        interpret(longest + blank, now=MONDAY, zone=TOKYO)


@pytest.mark.parametrize(("group", "case"), UNDERSTOOD, ids=name_of)
def test_what_repeats_is_due_again(group: dict[str, Any], case: dict[str, Any]) -> None:
    zone = ZoneInfo(group["zone"])
    now = local(group["now"], zone)
    schedule = said(group, case["say"]).schedule
    if schedule.cron:
        parse_cron(schedule.cron)
    due = next_due(schedule, zone=zone, after=now, stored_at=now)
    assert due is not None
    assert due.at > now


# Random words of both languages reach more of the grammars than random characters do.
VOCABULARY = sorted(
    {word for _, case in UNDERSTOOD + REFUSED for word in case["say"].split()}
    | set("月火水木金土日年時分秒半後朝昼夜の、・〜:-/0123456789十百二三〇")
    | {
        "毎週",
        "毎月",
        "来週",
        "今月",
        "午後",
        "深夜",
        "ごと",
        "おき",
        "か月",
        "末",
        "曜日",
        "に",
        "と",
    }
    | {"every", "the", "of", "month", "and", "half", "a", "at", "in", "1st", "29", "february"}
)
PHRASES = st.lists(st.sampled_from(VOCABULARY), max_size=7).flatmap(
    lambda words: st.sampled_from(["".join(words), " ".join(words)])
)
# And what the grammars themselves are made of, with numbers of all sizes and times of all years.
NUMBERS = st.one_of(st.integers(0, 100), st.integers(0, 10_000), st.integers(0)).map(str)
OFFSETS = st.sampled_from(["", "Z", " utc", "+00:00", "+14:00", "-1200", "+23:59", "-23:59", "+24:00", "+99:99"])
TIMES = st.builds(
    lambda at, mark, offset: at.isoformat(mark, "seconds") + offset,
    st.one_of(
        st.datetimes(),
        st.datetimes(datetime(1, 1, 1), datetime(1, 1, 3)),  # noqa: DTZ001
        st.datetimes(datetime(9998, 12, 30), datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    ),
    st.sampled_from("T "),
    OFFSETS,
)


def sentences(*alphabets: Sequence[str]) -> st.SearchStrategy[str]:
    words = st.one_of(NUMBERS, TIMES, *map(st.sampled_from, alphabets))
    return st.builds(
        lambda words, between: between.join(words),
        st.lists(words, max_size=8),
        st.sampled_from(["", " ", ", "]),
    )


SENTENCES = st.one_of(
    sentences(sorted(ENGLISH_WORDS), sorted(NUMBER_WORDS), ENGLISH_ACTIONS),
    sentences(sorted(JAPANESE_WORDS), sorted(NUMERALS), (*JAPANESE_ACTIONS, *ENDINGS)),
    TIMES,
)
NOWS = st.datetimes(datetime(2000, 1, 1), datetime(2120, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = st.sampled_from(
    [
        TOKYO,
        NEW_YORK,
        ZoneInfo("Australia/Lord_Howe"),
        ZoneInfo("America/Santiago"),
        ZoneInfo("Pacific/Kiritimati"),
        ZoneInfo("Pacific/Apia"),
        ZoneInfo("Etc/GMT+12"),
    ]
)


@settings(max_examples=600)
@given(phrase=st.one_of(PHRASES, SENTENCES, st.text(max_size=30)), now=NOWS, zone=ZONES)
@example(phrase="9" * 5000, now=MONDAY, zone=TOKYO)
@example(phrase="\ud800", now=MONDAY, zone=TOKYO)
@example(phrase="九" * 50 + "日後", now=MONDAY, zone=TOKYO)
@example(phrase="9999年12月末の24時", now=MONDAY, zone=TOKYO)
@example(phrase="9999-12-31T23:59:59-14:00", now=MONDAY, zone=TOKYO)
@example(phrase="9999-12-31T23:59:59Z", now=MONDAY, zone=TOKYO)
@example(phrase="9999-12-31 23:59", now=MONDAY, zone=TOKYO)
@example(phrase="9999-12-31 23:59", now=MONDAY, zone=NEW_YORK)
@example(phrase="0001-01-01T00:00:00Z", now=MONDAY, zone=NEW_YORK)
@example(phrase="7972年後", now=MONDAY, zone=TOKYO)
@example(phrase="0001-01-01T00:00:00+14:00", now=MONDAY, zone=TOKYO)
def test_any_text_is_a_time_to_come_or_a_clear_error(phrase: str, now: datetime, zone: ZoneInfo) -> None:
    try:
        read = interpret(phrase, now=now, zone=zone)
    except PhraseError:
        return
    schedule = read.schedule
    assert [schedule.at is not None, schedule.cron != "", schedule.every is not None].count(True) == 1
    assert read.recurring is (schedule.at is None)
    assert read.text
    if schedule.at is not None:
        assert schedule.at > now
        assert schedule.at.tzinfo is UTC
        assert schedule.at.year <= LAST_YEAR
    if schedule.cron:
        parse_cron(schedule.cron)


def documented() -> list[list[str]]:
    """The rows of the tables of phrases in the documentation."""
    page = Path(__file__).parents[3] / "docs" / "times-in-words.md"
    tables = page.read_text(encoding="utf-8").partition("## The grammar")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.mark.parametrize("row", documented(), ids=lambda row: row[0])
def test_the_documentation_is_right(row: list[str]) -> None:
    phrase, text, *stored = row
    read = interpret(phrase, now=MONDAY, zone=TOKYO, calendar={"country": "jp"})
    assert read.text == text
    schedule = read.schedule
    expected = [] if not read.recurring else [schedule.cron or f"every: {schedule.every:.0f}"]
    if schedule.business_day:
        expected[0] += f"`, `business_day: {schedule.business_day}"
    assert stored == expected


def test_the_documentation_lists_every_action() -> None:
    page = (Path(__file__).parents[3] / "docs" / "times-in-words.md").read_text(encoding="utf-8")
    words = page.replace("\n ", "")
    missing = [
        each
        for each in (*JAPANESE_ACTIONS, *ENDINGS, *ENGLISH_ACTIONS)
        if f" {each}," not in words and f" {each}\n" not in words
    ]
    assert missing == []
