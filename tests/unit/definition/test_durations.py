from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban.definition import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5h", 5400),
        ("45", 45),
        ("0s", 0),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_durations_are_read(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "5 m", "5x", "m5", "-5s", "1m1h", "1s1s", "5M", "1e3s", "s", "5m ", "٥s"],
)
def test_other_texts_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write 250ms, 30s, 5m, 2h, 1d, 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("value", [-1, -0.5, math.inf, math.nan, 10**400, True, "40000d", "9" * 99])
def test_impossible_durations_are_refused(value: float | str) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        parse_duration(value)


@given(st.integers(0, 10**12))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.text())
def test_any_text_is_a_duration_or_a_clear_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        message = str(error)
    else:
        message = "a duration" if seconds >= 0 else ""
    assert "duration" in message


def test_durations_are_formatted_for_people() -> None:
    assert format_duration(0) == "0s"
    assert format_duration(5400) == "1h30m"
    assert format_duration(0.25) == "250ms"
    for seconds in (-1, math.inf, math.nan):
        with pytest.raises(ValueError, match="finite and not negative"):
            format_duration(seconds)
