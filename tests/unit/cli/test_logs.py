from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.v1 import run_pb2

from .conftest import Cli

ODD = b"\xff\xfe\r\n\x1b[31mred\x1b[0m\x00no newline"


@pytest.fixture
def single(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("single")
    return daemon.add_run("single", state=run_pb2.RUN_STATE_SUCCEEDED)


@pytest.fixture
def several(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("several")
    return daemon.add_run("several", steps=["a", "bb"], state=run_pb2.RUN_STATE_SUCCEEDED)


def test_one_step_comes_byte_by_byte(cli: Cli, daemon: FakeDaemon, single: RunRecord) -> None:
    daemon.write(single, "one", ODD[:3], ODD[3:])
    assert cli("logs", "single").raw == ODD
    assert cli("logs", "single", "--step", "one").raw == ODD


def test_a_chosen_step_comes_byte_by_byte(cli: Cli, daemon: FakeDaemon, several: RunRecord) -> None:
    daemon.write(several, "a", ODD)
    daemon.write(several, "bb", b"other\n")
    assert cli("logs", "several", "--step", "a").raw == ODD


def test_one_process_is_chosen_by_its_id(cli: Cli, daemon: FakeDaemon, several: RunRecord) -> None:
    daemon.write(several, "a", ODD)
    daemon.write(several, "bb", b"other\n")
    for chunk, process in zip(several.chunks, ("p1", "p2"), strict=True):
        chunk.process_execution_id = process
        several.processes.append(run_pb2.ProcessExecution(id=process))
    assert cli("logs", "--process", "p1").raw == ODD
    assert cli("logs", "--process", "p2").raw == b"other\n"
    assert cli("logs", "--process", "p3").code == 5
    for arguments in ([], ["several", "--process", "p1"], ["--process", "p1", "--step", "a"]):
        assert cli("logs", *arguments).code == 2


def test_attempts_are_marked(cli: Cli, daemon: FakeDaemon, single: RunRecord, several: RunRecord) -> None:
    for record, step in ((single, "one"), (several, "a")):
        for attempt in (1, 2, 2, 3):
            daemon.write(record, step, b"line\n")
            record.chunks[-1].attempt = attempt
            record.chunks[-1].process_execution_id = f"{step}-{attempt}"
    marked = b"a | line\n" + 2 * b"a (attempt 2) | line\n" + b"a (attempt 3) | line\n"
    assert cli("logs", "several").raw == marked
    assert cli("logs", "several", "-f").raw == marked
    alone = cli("logs", "single")
    assert (alone.raw, alone.err) == (4 * b"line\n", "toban: one (attempt 2):\ntoban: one (attempt 3):\n")
    assert cli("logs", "single", "-q").err == ""
    assert cli("logs", "single", "--step", "one", "--attempt", "2").err == ""


def test_several_steps_are_told_apart(cli: Cli, daemon: FakeDaemon, several: RunRecord) -> None:
    daemon.write(several, "a", b"1\n2\nhalf ")
    daemon.write(several, "bb", b"between\n\n")
    daemon.write(several, "a", b"a line\n3\nlast")
    daemon.write(several, "a", b"own stream\n", stream=run_pb2.LOG_STREAM_STDERR)
    assert cli("logs", "several").raw == (
        b"a | 1\na | 2\nbb | between\nbb | \na | half a line\na | 3\na | own stream\na | last\n"
    )


def test_a_line_that_never_ends_is_shown_in_parts(cli: Cli, daemon: FakeDaemon, several: RunRecord) -> None:
    daemon.write(several, "a", *[b"x" * 300_000] * 5)
    lines = cli("logs", "several").raw.splitlines()
    assert b"".join(line.removeprefix(b"a | ") for line in lines) == b"x" * 1_500_000
    assert 1 < len(lines) < 5


def test_timestamps(cli: Cli, daemon: FakeDaemon, single: RunRecord, several: RunRecord) -> None:
    for record, step in ((single, "one"), (several, "a")):
        daemon.write(record, step, b"begun ", b"ended\nnext\n")
        first, second = record.chunks[0].records
        first.at.FromJsonString("2026-02-01T00:15:30.123456Z")
        second.at.FromJsonString("2026-02-01T00:15:31Z")
    assert cli("logs", "single", "-t").out.splitlines() == [
        "2026-02-01 09:15:30.123 JST begun ended",
        "2026-02-01 09:15:31.000 JST next",
    ]
    assert cli("logs", "several", "--timestamps").out.splitlines() == [
        "2026-02-01 09:15:30.123 JST a | begun ended",
        "2026-02-01 09:15:31.000 JST a | next",
    ]


def test_what_toban_says_itself_is_kept_apart(
    cli: Cli, daemon: FakeDaemon, single: RunRecord, several: RunRecord
) -> None:
    for record, step in ((single, "one"), (several, "a")):
        daemon.write(record, step, b"out\n")
        daemon.write(record, step, b"timed out", stream=run_pb2.LOG_STREAM_SYSTEM)
    result = cli("logs", "single")
    assert (result.raw, result.err) == (b"out\n", "toban: timed out\n")
    assert cli("logs", "several").raw == b"a | out\na * timed out\n"


def test_what_is_asked_for_reaches_the_daemon(cli: Cli, daemon: FakeDaemon, single: RunRecord) -> None:
    daemon.write(single, "one", b"out\n")
    daemon.write(single, "one", b"err\n", stream=run_pb2.LOG_STREAM_STDERR)
    before = datetime.now(UTC)
    result = cli(
        "logs",
        "single",
        *(
            "--step",
            "one",
            "--attempt",
            "2",
            "--tail",
            "7",
            "--since",
            "1h30m",
            "--stderr-only",
            "-f",
        ),
    )
    assert result.raw == b"err\n"
    request = daemon.seen[-1]
    assert isinstance(request, run_pb2.StreamLogsRequest)
    assert (request.step, request.attempt, request.tail, request.follow) == ("one", 2, 7, True)
    assert list(request.streams) == [run_pb2.LOG_STREAM_STDERR]
    asked_at = request.since.ToDatetime(tzinfo=UTC) + timedelta(hours=1.5)
    assert before <= asked_at <= datetime.now(UTC)


@pytest.mark.parametrize("since", ["2026-02-01T09:15:30", "2026-02-01T00:15:30Z"])
def test_since_a_time_of_the_wall_or_of_the_world(cli: Cli, daemon: FakeDaemon, single: RunRecord, since: str) -> None:
    assert cli("logs", "single", "--since", since).code == 0
    request = daemon.seen[-1]
    assert isinstance(request, run_pb2.StreamLogsRequest)
    assert request.since.ToJsonString() == "2026-02-01T00:15:30Z"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--since", "yesterday"], 2, "cannot read --since: expected a duration such as 5m"),
        (["--since", "999999999999d"], 2, "cannot read --since"),
        (["--attempt", "2"], 2, "--attempt needs --step"),
        (["--tail", "0"], 2, "--tail"),
        (["--level", "warn"], 2, "'warn' is not one of 'debug', 'info', 'warning', 'error'"),
        (["--level", "info", "--raw"], 2, "--level and --raw exclude each other"),
        (["--step", "none"], 5, "no step none"),
    ],
)
def test_wrong_wishes(cli: Cli, single: RunRecord, arguments: list[str], code: int, message: str) -> None:
    result = cli("logs", "single", *arguments)
    assert result.code == code
    assert message in result.err
    assert result.err.startswith("toban: ")


def test_for_programs(cli: Cli, daemon: FakeDaemon, single: RunRecord) -> None:
    word = "夜\n".encode()
    daemon.write(single, "one", word[:1], word[1:])
    single.chunks[0].records[0].at.FromJsonString("2026-02-01T00:15:30.5Z")
    first, second, end = cli("logs", "single", "-o", "json").objects
    assert first == {
        "at": "2026-02-01T00:15:30.500Z",
        "step": "one",
        "step_title": "",
        "attempt": 1,
        "stream": "stdout",
        "text": "",
        "level": None,
        "message": "",
        "process_execution_id": "one-1",
    }
    assert second["text"] == "夜\n"
    assert end == {"end": {"run_state": "succeeded", "complete": True}}


def test_log_lines_have_their_level(cli: Cli, daemon: FakeDaemon, single: RunRecord, several: RunRecord) -> None:
    for record, step in ((single, "one"), (several, "a")):
        daemon.write(record, step, b"text\n", "91% 満杯\n".encode(), b"more\n")
        warning = record.chunks[0].records[1]
        warning.level, warning.message = run_pb2.LOG_LEVEL_WARNING, "91% 満杯"
    assert cli("logs", "single").raw.decode() == "text\nwarning: 91% 満杯\nmore\n"
    assert cli("logs", "several").raw.decode() == "a | text\na | warning: 91% 満杯\na | more\n"
    second = cli("logs", "single", "-o", "json").objects[1]
    assert (second["level"], second["message"], second["text"]) == ("warning", "91% 満杯", "91% 満杯\n")
    cli("logs", "single", "--level", "error")
    cli("logs", "single", "--raw")
    asked = [each for each in daemon.seen if isinstance(each, run_pb2.StreamLogsRequest)]
    assert [(each.raw, each.level) for each in asked[-2:]] == [
        (False, run_pb2.LOG_LEVEL_ERROR),
        (True, run_pb2.LOG_LEVEL_UNSPECIFIED),
    ]


def test_a_large_log_keeps_every_byte(cli: Cli, daemon: FakeDaemon, single: RunRecord) -> None:
    pieces = [bytes([number]) * 65536 for number in range(160)]
    for begin in range(0, 160, 16):
        daemon.write(single, "one", *pieces[begin : begin + 16])
    assert cli("logs", "single").raw == b"".join(pieces)


@pytest.fixture
def loops(daemon: FakeDaemon) -> RunRecord:
    """A for_each step with two instances that have completion checks."""
    daemon.add_workflow("loops")
    record = daemon.add_run("loops", steps=["build", "build[0]", "build[1]", "z"], state=run_pb2.RUN_STATE_SUCCEEDED)
    for step in record.run.steps[:3]:
        step.max_iterations = 3
    for step in record.run.steps[1:3]:
        step.parent = "build"
    for name in ("build[0]", "build[0].check", "build[1]", "build[1].check", "z"):
        daemon.write(record, name, f"of {name}\n".encode())
    return record


@pytest.mark.parametrize(
    ("step", "written"),
    [
        ("build[1]", "of build[1]\n"),
        ("build[1].check", "of build[1].check\n"),
        ("build", "build[0] | of build[0]\nbuild[1] | of build[1]\n"),
        (
            "build.check",
            "build[0].check | of build[0].check\nbuild[1].check | of build[1].check\n",
        ),
        ("z", "of z\n"),
    ],
)
def test_instances_and_checks_have_names(cli: Cli, loops: RunRecord, step: str, written: str) -> None:
    assert cli("logs", "loops", "--step", step).out == written


@pytest.mark.parametrize("step", ["z.check", "build[2]", "build.check.check"])
def test_names_that_there_are_not(cli: Cli, loops: RunRecord, step: str) -> None:
    result = cli("logs", "loops", "--step", step)
    assert result.code == 5
    assert f"no step {step}" in result.err


def test_an_attempt_of_many_instances(cli: Cli, loops: RunRecord) -> None:
    result = cli("logs", "loops", "--step", "build", "--attempt", "1")
    assert result.code == 2
    assert result.err.splitlines()[1] == "hint: choose an instance: --step 'build[0]'"


def test_the_only_step_and_its_check_are_told_apart(cli: Cli, daemon: FakeDaemon, single: RunRecord) -> None:
    single.run.steps[0].max_iterations = 2
    daemon.write(single, "one", b"work\n")
    daemon.write(single, "one.check", b"not yet\n")
    assert cli("logs", "single").out == "one | work\none.check | not yet\n"
