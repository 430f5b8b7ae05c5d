"""ReadLog and SearchLogs through a real daemon: while a step prints, afterwards, and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.gate import Gate
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.sdk import SyncClient
from toban.v1 import run_pb2

PRINTS = """
name: prints
description: d
steps:
- name: many
  run: |
    for i in $(seq 20000); do echo "line $i of a log that is long enough for an index"; done
    echo "::progress 1/2"
    echo "::log level=error it Broke"
    printf 'bad \\377 \\033[2J\\n'
    head -c 3000000 /dev/zero | tr '\\0' x; echo
    printf 'no end'
- {name: few, run: echo line one; echo line two >&2, depends_on: [many]}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("l") / "s") as running:
        yield running


def read(daemon: Daemon, **fields: Any) -> run_pb2.ReadLogResponse:
    return daemon.runs.ReadLog(run_pb2.ReadLogRequest(**fields), timeout=30)


def search(daemon: Daemon, **fields: Any) -> run_pb2.SearchLogsResponse:
    return daemon.runs.SearchLogs(run_pb2.SearchLogsRequest(**fields), timeout=30)


def numbers(answer: run_pb2.SearchLogsResponse) -> list[tuple[str, int]]:
    return [(match.step, match.line.number) for match in answer.matches]


def test_lines_by_number_and_by_text(daemon: Daemon) -> None:
    daemon.apply(PRINTS)
    run = daemon.run("prints")
    for _ in range(2):
        page = read(daemon, run_id=run.id, step="many", first_line=15_000, lines=3)
        assert [(line.number, line.data) for line in page.lines] == [
            (number, b"line %d of a log that is long enough for an index" % number)
            for number in (15_000, 15_001, 15_002)
        ]
        assert (page.total_lines, page.ended, page.complete, page.attempt) == (20_004, True, True, 1)
        at = page.lines[1].offset
        assert (
            read(daemon, process_execution_id=page.process_execution_id, offset=at, lines=1).lines[0].number == 15_001
        )
        broke, bad, long, last = read(daemon, run_id=run.id, step="many", first_line=-4).lines
        assert (broke.data, broke.level) == (b"it Broke", run_pb2.LOG_LEVEL_ERROR)
        assert bad.data == b"bad \xff \x1b[2J"
        assert (long.bytes, len(long.data), last.data, last.unfinished) == (3_000_000, 4096, b"no end", False)
        raw = read(daemon, run_id=run.id, step="many", first_line=20_001, lines=2, raw=True).lines
        assert [line.data for line in raw] == [b"::progress 1/2", b"::log level=error it Broke"]
        assert numbers(search(daemon, run_id=run.id, text="BROKE", ignore_case=True)) == [("many", 20_001)]
        assert numbers(search(daemon, run_id=run.id, text="BROKE")) == []
        assert numbers(search(daemon, run_id=run.id, text="level=error", raw=True)) == [("many", 20_002)]
        assert numbers(search(daemon, run_id=run.id, text="x" * 1000))[0] == ("many", 20_003)
        first = search(daemon, run_id=run.id, text="line ", page_size=1000)
        assert numbers(first) == [("many", number) for number in range(1, 1001)]
        second = search(daemon, run_id=run.id, text="line ", page_size=1000, page_token=first.next_page_token)
        assert numbers(second)[0] == ("many", 1001)
        assert numbers(search(daemon, run_id=run.id, text="line two")) == [("few", 2)]
        with SyncClient(daemon.socket) as client:
            assert sum(1 for _ in client.search_logs("line ", run_id=run.id, page_size=1000)) == 20_002
            assert client.read_log(run_id=run.id, step="few", first_line=2).lines[0].data == b"line two"
        # The same from the index that the first daemon left.
        assert list(daemon.state_dir.glob(f"runs/{run.id}/attempts/*.log.lines"))
        daemon.stop()
        daemon.start()


def test_a_log_that_grows_and_one_that_is_gone(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(str(tmp_path / "gate"))
    script = f"echo first; printf begun; read _ < {gate.path}; echo ' ended'"
    daemon.apply(f"name: grows\ndescription: d\nsteps:\n- name: one\n  run: {script}")
    run_id = daemon.start_run("grows")

    def page() -> list[tuple[bytes, bool]]:
        lines = read(daemon, run_id=run_id, step="one").lines if daemon.processes(run_id) else []
        return [(line.data, line.unfinished) for line in lines]

    wait_until(lambda: page() == [(b"first", False), (b"begun", True)], "it prints nothing")
    answer = read(daemon, run_id=run_id, step="one")
    assert (answer.total_lines, answer.ended) == (1, False)
    assert numbers(search(daemon, run_id=run_id, text="egu")) == [("one", 2)]
    gate.release_now()
    daemon.wait_run(run_id)
    assert page() == [(b"first", False), (b"begun ended", False)]
    (log,) = daemon.state_dir.glob(f"runs/{run_id}/attempts/*.log")
    log.unlink()
    assert refused(lambda: read(daemon, run_id=run_id, step="one")).reason == "LOG_EXPIRED"
    assert numbers(search(daemon, run_id=run_id, text="egu")) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "run_id"),
        ({"run_id": "x"}, "process_execution_id"),
        ({"process_execution_id": "x", "step": "a"}, "process_execution_id"),
        ({"run_id": "x", "step": "a", "lines": 10_001}, "lines"),
        ({"run_id": "x", "step": "a", "offset": -1}, "offset"),
        ({"run_id": "x", "step": "a", "line_bytes": 2**20 + 1}, "line_bytes"),
        ({"run_id": "x", "step": "a"}, "RUN_NOT_FOUND"),
        ({"process_execution_id": "x"}, "PROCESS_EXECUTION_NOT_FOUND"),
    ],
)
def test_a_log_that_cannot_be_read(daemon: Daemon, fields: dict[str, Any], reason: str) -> None:
    found = refused(lambda: read(daemon, **fields))
    assert reason in (found.reason, *(name for name, _ in found.violations))


@pytest.mark.parametrize("text", ["", "a\nb", "日" * 334])
def test_a_text_that_cannot_be_searched(daemon: Daemon, text: str) -> None:
    found = refused(lambda: search(daemon, run_id="x", text=text))
    assert (found.code, [name for name, _ in found.violations]) == (grpc.StatusCode.INVALID_ARGUMENT, ["text"])
