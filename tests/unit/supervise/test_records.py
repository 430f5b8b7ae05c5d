"""What a step wrote to its output file, and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toband.supervise.records import parse_outputs, time_of

unhurried = settings(deadline=None, max_examples=60)
keys = st.text(st.characters(categories=["L", "N"], include_characters="_-."), min_size=1)
one_line = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1\nb=two words\n", {"a": "1", "b": "two words"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=\n", {"a": ""}),
        ("a=b=c\n", {"a": "b=c"}),
        ("a=x<<y\n", {"a": "x<<y"}),
        ("a<<END\none\n\ntwo=2\nEND\nb=3\n", {"a": "one\n\ntwo=2", "b": "3"}),
        ("a<<END\nnever closed\n", {"a": "never closed"}),
        ("a<<E\nE\n", {"a": ""}),
        ("nothing\n=1\n\n", {}),
    ],
)
def test_outputs(text: str, outputs: dict[str, str]) -> None:
    assert parse_outputs(text) == outputs


@unhurried
@given(keys, one_line)
def test_a_value_of_one_line_is_kept_as_it_is(key: str, value: str) -> None:
    assert parse_outputs(f"{key}={value}\n") == {key: value}


@unhurried
@given(keys, st.lists(one_line.filter(lambda line: line != "END")))
def test_a_block_is_kept_as_it_is(key: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert parse_outputs(f"{key}<<END\n{text}END\n") == {key: "\n".join(lines)}


@unhurried
@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001
def test_times_are_exact_to_the_microsecond(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC)
    microseconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert time_of(microseconds) == at
    assert time_of(microseconds).tzinfo is UTC
