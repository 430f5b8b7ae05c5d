"""Logs at their size limit: the step goes on, and dropped output is counted and reported."""

from __future__ import annotations

import os

import pytest

from helpers.steps import shell
from helpers.supervision import Supervision, new_attempt
from helpers.wait import wait_for
from toband.ports import LogKind

MIB = 1024 * 1024


@pytest.mark.parametrize("limit", [1, 1000, 100_000, 2 * MIB])
async def test_exactly_so_much_of_the_output_is_kept(supervision: Supervision, limit: int) -> None:
    attempt = supervision.launch(shell("head -c 3000000 /dev/zero | tr '\\0' x; exit 3"), log_limit=limit)
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 3
    assert (ended.stdout_bytes, ended.dropped_bytes) == (limit, 3_000_000 - limit)
    assert supervision.printed(attempt) == b"x" * limit
    note = supervision.printed(attempt, LogKind.SYSTEM).decode()
    assert note.startswith(f"{3_000_000 - limit} bytes of output were dropped here: an attempt may")


async def test_both_streams_count(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("head -c 600 /dev/zero; head -c 600 /dev/zero >&2"), log_limit=1000)
    ended = await supervision.ended(attempt)

    assert ended.stdout_bytes + ended.stderr_bytes == 1000
    assert ended.dropped_bytes == 200


async def test_output_within_the_limit_is_whole_and_without_a_note(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(shell("printf 12345"), log_limit=5)
    ended = await supervision.ended(attempt)

    assert (ended.stdout_bytes, ended.dropped_bytes) == (5, 0)
    assert supervision.printed(attempt, LogKind.SYSTEM) == b""


async def test_nothing_is_kept_while_all_logs_together_are_too_large(
    supervision: Supervision,
) -> None:
    full = supervision.files.logs_full
    supervision.place.write("runs/.logs-full")
    gate = supervision.gate()
    script = 'head -c 3000000 /dev/zero; : > done; read x < "$1"; head -c 1000000 /dev/zero; exit 3'
    attempt = supervision.launch(shell(script, gate.path))
    try:
        await supervision.appears("done")
        size = os.stat(supervision.files.log(attempt)).st_size
    finally:
        os.unlink(full)
    # What was allocated is used up, and not more.
    assert size < 256 * 1024
    await gate.release()
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 3
    assert ended.stdout_bytes + ended.dropped_bytes == 4_000_000
    assert ended.stdout_bytes >= 1_000_000
    note = supervision.printed(attempt, LogKind.SYSTEM).decode()
    assert "all logs together are as large as they may be" in note
    assert note.startswith(f"{ended.dropped_bytes} bytes")


async def test_a_short_log_is_kept_whatever_others_print(supervision: Supervision) -> None:
    full = supervision.files.logs_full
    supervision.place.write("runs/.logs-full")
    try:
        attempt = supervision.launch(shell("echo short"), attempt=new_attempt())
        await supervision.ended(attempt)
    finally:
        os.unlink(full)
    await wait_for(lambda: supervision.printed(attempt) == b"short\n", "the log is not there")
