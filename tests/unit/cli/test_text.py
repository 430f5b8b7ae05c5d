from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban.cli import human_text
from toban.cli.args import time_options
from toban.cli.render.output import Column, table, time_column, wide_table
from toban.cli.render.resource_text import curve
from toban.cli.session import Session
from toban.quantity_text import counted, duration_text, size_text

NOW = datetime(2026, 2, 1, 0, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0ms"),
        (0, "0ms"),
        (0.4509, "450ms"),
        (1, "1s"),
        (3.29, "3.2s"),
        (9.99, "9.9s"),
        (59.9, "59s"),
        (62, "1m 02s"),
        (3599, "59m 59s"),
        (7500, "2h 05m"),
        (97200, "1d 03h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == words


def test_times_are_local_and_absent_ones_are_told() -> None:
    at = Timestamp()
    assert human_text.clock(at) == "-"
    at.FromDatetime(NOW)
    assert human_text.clock(at) == "2026-02-01 09:15:30 JST"
    assert human_text.stamp(NOW) == "2026-02-01 09:15:30.000 JST"
    assert human_text.span(at, None, NOW + timedelta(seconds=62)) == "1m 02s"
    assert human_text.span(None, None, NOW) == "-"


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("UTC", "2026-02-01 00:15:30 UTC"),
        ("America/New_York", "2026-01-31 19:15:30 EST"),
        ("America/Sao_Paulo", "2026-01-31 21:15:30 -03:00"),
        ("Asia/Kathmandu", "2026-02-01 06:00:30 +05:45"),
        ("<+09>-9", "2026-02-01 09:15:30 +09:00"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="the zone of the process cannot be set there")
def test_a_time_has_its_zone_or_its_offset(monkeypatch: pytest.MonkeyPatch, zone: str, shown: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    assert human_text.zoned(NOW) == shown


@pytest.mark.skipif(sys.platform == "win32", reason="the zone of the process cannot be set there")
def test_a_table_has_the_zone_in_its_header_unless_the_clocks_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    here = Session()
    summer, winter, absent = Timestamp(), Timestamp(), Timestamp()
    summer.FromJsonString("2026-10-25T00:30:00Z")
    winter.FromJsonString("2026-10-25T01:30:00Z")
    columns: list[Column[Timestamp]] = [time_column("DUE", lambda at: at), Column("X", lambda _: "x")]

    table(here, [summer, absent], columns)
    table(here, [summer, winter], columns)
    table(here, [absent], columns)

    assert capsys.readouterr().out.splitlines() == [
        "DUE (CEST)           X",
        "2026-10-25 02:30:00  x",
        "-                    x",
        "DUE                       X",
        "2026-10-25 02:30:00 CEST  x",
        "2026-10-25 02:30:00 CET   x",
        "DUE  X",
        "-    x",
    ]


@pytest.mark.parametrize(
    ("given", "ago"),
    [("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400), ("1.5s", 1.5), ("2h ago", 7200)],
)
def test_since(given: str, ago: float) -> None:
    assert time_options.parse_since(given, NOW) == NOW - timedelta(seconds=ago)


@pytest.mark.parametrize("given", ["", "5", "m", "5m x", "-5m", "5y"])
def test_since_nothing(given: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        time_options.parse_since(given, NOW)


@pytest.mark.parametrize(
    "given",
    ["99999999999d", "9999999d", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"],
)
def test_a_time_beyond_the_calendar(given: str) -> None:
    for parse in (time_options.parse_since, time_options.parse_at):
        with pytest.raises(ValueError, match="is out of range: expected a duration"):
            parse(given, NOW)


def test_a_time_of_today_or_anything_else() -> None:
    here = NOW.astimezone()
    assert time_options.parse_at("03:05", NOW) == here.replace(hour=3, minute=5, second=0, microsecond=0)
    assert time_options.parse_at("23:59:58", NOW).astimezone().strftime("%H:%M:%S") == "23:59:58"
    assert time_options.parse_at("3:05", NOW) == time_options.parse_at("03:05", NOW)
    assert time_options.parse_at("5m", NOW) == time_options.parse_since("5m", NOW)
    assert time_options.parse_at("2026-02-01T03:00:00+09:00", NOW).isoformat().startswith("2026-0")
    for wrong in ("24:00", "3:0", "2026", "noon", "03:00Z"):
        with pytest.raises(ValueError, match="expected a duration"):
            time_options.parse_at(wrong, NOW)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (200 << 20, "200 MiB"),
        (3 << 40, "3 TiB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    assert size_text(count) == words


def test_counts() -> None:
    assert counted(1, "process") == "1 process"
    assert [counted(0, "step"), counted(2, "entry"), counted(3, "process")] == ["0 steps", "2 entries", "3 processes"]
    assert counted(2, "other does", "others do") == "2 others do"


def test_words_of_others_stay_in_their_line() -> None:
    assert human_text.one_line("a\nb\x1b[2Jc\x1b]0;title\x07d\x9be") == (r"a b\x1b[2Jc\x1b]0;title\x07d\x9be")
    assert human_text.plain("\x1b[31mred\x1b[0m\tx\x08") == "red        x\\x08"


def test_wide_characters_are_two_columns() -> None:
    assert human_text.width("当番 a") == 6
    assert human_text.width("か\u3099 ❤\ufe0f") == 4
    assert wide_table(["A", "B"], [["当番", "x"], ["abcdef", "y"]]).splitlines() == [
        "A       B",
        "当番    x",
        "abcdef  y",
    ]


def test_a_curve_is_as_wide_as_it_has_values_and_no_wider() -> None:
    assert curve([]) == ""
    assert curve([0, 0]) == ""
    assert curve([1, 4, 8]) == "▂▅█"
    assert len(curve(range(1000))) == 24
    assert curve([0] * 999 + [5])[-1] == "█", "a peak is never lost among others"
