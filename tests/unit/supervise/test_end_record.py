"""End records: of this version and older ones, outputs, and times."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.supervision import new_attempt
from toband.domain.attempt_model import TreeCause
from toband.supervise.launch.end_record import (
    OUTPUTS_LOST,
    RecordError,
    claim_of,
    end_of,
    ended,
    started,
    survivors,
    time_of,
)
from toband.supervise.launch.step_outputs import parse_outputs

few = settings(max_examples=60)
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


@few
@given(keys, one_line)
def test_a_value_of_one_line_is_kept_as_it_is(key: str, value: str) -> None:
    assert parse_outputs(f"{key}={value}\n") == {key: value}


@few
@given(keys, st.lists(one_line.filter(lambda line: line != "END")))
def test_a_block_is_kept_as_it_is(key: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert parse_outputs(f"{key}<<END\n{text}END\n") == {key: "\n".join(lines)}


@few
@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001
def test_times_are_exact_to_the_microsecond(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC)
    microseconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert time_of(microseconds) == at
    assert time_of(microseconds).tzinfo is UTC


OLD: dict[str, Any] = {
    "seal": "seal",
    "cause": "exited",
    "error": "",
    "pid": 7,
    "started_at": 1,
    "finished_at": 2,
    "exit_code": 0,
    "signal": None,
    "signals": [],
    "leftovers": 0,
    "survivors": 0,
    "proved_empty": True,
    "took": 0.0,
    "stdout_bytes": 1,
    "stderr_bytes": 2,
    "dropped": 0,
    "user_time": 0.0,
    "system_time": 0.0,
    "max_rss": 0,
}
"""As the first shims wrote it: some may still run when the daemon is a newer one."""


def test_a_record_of_an_older_shim_is_understood() -> None:
    found = ended(new_attempt(), OLD)

    assert (found.exit_code, found.error, found.dropped_bytes) == (0, "", 0)
    assert (found.ending.limit, found.ending.cgroup, found.ending.orphans) == ("", False, None)
    assert survivors(OLD) == ()


def test_what_a_limit_and_a_cgroup_did_is_told() -> None:
    told = {"cause": "limit", "limit": "memory: too much", "error": "memory: too much"}
    found = ended(new_attempt(), OLD | told | {"cgroup": True, "dropped": 5})

    assert found.ending.cause is TreeCause.LIMIT
    assert (found.ending.limit, found.error) == ("memory: too much", "memory: too much")
    assert (found.ending.cgroup, found.dropped_bytes) == (True, 5)


def test_survivors_are_named() -> None:
    record = OLD | {"survivors": 2, "survivor_pids": [[10, 100], [11, 101]], "proved_empty": False}

    assert survivors(record) == ((10, 100), (11, 101))
    ending = ended(new_attempt(), record).ending
    assert (ending.survivors, ending.survivor_pids) == (2, (10, 11))
    assert ended(new_attempt(), OLD | {"survivors": 2}).ending.survivor_pids == ()


@pytest.mark.parametrize("error", ["", "killed"])
def test_lost_outputs_are_an_error_whatever_else_was(error: str) -> None:
    found = ended(new_attempt(), OLD | {"outputs_lost": True, "error": error})

    assert found.error == (f"{error}; {OUTPUTS_LOST}" if error else OUTPUTS_LOST)


CLAIM: dict[str, Any] = {"format": 1, "pid": 7, "start": 8, "boot_id": "b", "seal": "s"}
STARTED: dict[str, Any] = {"pid": 7, "at": 1}
NO_VALUES: list[Any] = [
    None,
    [],
    {},
    "x",
    -1,
    1 << 70,
    1.5,
    True,
    float("nan"),
    float("inf"),
    [[1]],
]
REQUIRED = sorted(OLD.keys() - {"seal"})


@pytest.mark.parametrize("name", REQUIRED)
def test_an_end_record_without_one_of_its_keys_is_not_believed(name: str) -> None:
    record = {key: value for key, value in OLD.items() if key != name}

    with pytest.raises(RecordError, match=f"its end record lacks '{name}'"):
        end_of(new_attempt(), record)


@pytest.mark.parametrize("value", NO_VALUES, ids=repr)
@pytest.mark.parametrize("name", sorted({*OLD, "survivor_pids", "unsynced", "limit", "result"}))
def test_a_value_that_cannot_be_is_an_error_of_the_record_and_of_nothing_else(name: str, value: Any) -> None:
    with contextlib.suppress(RecordError):
        found = end_of(new_attempt(), OLD | {name: value}).event
        assert found.started_at.tzinfo is UTC
        assert 0 <= found.stdout_bytes < 1 << 63
        assert 0 <= found.ending.took < 1 << 63


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
fields = st.dictionaries(st.sampled_from([*OLD, *CLAIM, "at", "void", "token", "attempt"]), anything)


@settings(max_examples=300)
@given(fields)
def test_whatever_a_file_says_is_either_believed_or_refused(facts: dict[str, Any]) -> None:
    attempt = new_attempt(id="a", token="t")
    whole = CLAIM | {"attempt": "a", "token": "t"}
    for read, valid in ((end_of, OLD), (claim_of, whole), (started, STARTED)):
        with contextlib.suppress(RecordError):
            read(attempt, {**valid, **facts})


def test_the_claim_of_another_attempt_is_not_believed() -> None:
    attempt = new_attempt()
    own = CLAIM | {"attempt": attempt.id, "token": attempt.token}

    assert claim_of(attempt, own).pid == 7
    for other in ({"attempt": "x"}, {"token": "x"}, {"pid": 0}, {"start": "1"}, {"boot_id": None}):
        with pytest.raises(RecordError):
            claim_of(attempt, own | other)


def test_a_void_claim_of_an_earlier_version_has_no_token() -> None:
    attempt = new_attempt()

    assert claim_of(attempt, {"format": 1, "attempt": attempt.id, "void": True}).void
    with pytest.raises(RecordError):
        claim_of(attempt, {"attempt": attempt.id, "void": True, "token": "x"})


def test_text_that_cannot_be_stored_is_replaced() -> None:
    found = ended(new_attempt(), OLD | {"error": "\ud800", "output": "a=\udfff\n", "result": '"x"'})

    assert (found.error, found.outputs, found.result) == ("?", {"a": "?"}, "x")


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000, "9" * 10_000])
def test_a_result_that_cannot_be_read_is_none(text: str) -> None:
    assert ended(new_attempt(), OLD | {"result": text}).result is None
