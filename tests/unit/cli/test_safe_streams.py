"""Whatever others wrote, a terminal is shown text: nothing that it would obey, or that looks like something else."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
import pytest
from ruamel.yaml import YAML

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.cli.command_line import main
from toban.cli.render.log_tail import LastLines
from toban.v1 import access_pb2, access_rule_pb2, event_pb2, run_pb2, schedule_pb2, secret_pb2, system_pb2, workflow_pb2

from .conftest import Cli, OnTerminal

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "a\x1b[2J\x1b]0;t\x07\x9b31m\x7f\u202egpj.exe\u2066x\u2069\u200e\u200f\u2028\u2029\x85\r\x08[red]b"
FORMS = ["table", "json", "yaml", "name"]


@pytest.fixture
def evil(daemon: FakeDaemon) -> RunRecord:
    """All messages that a client can get, with hostile characters in every text."""
    stored = daemon.add_workflow("nightly", f"name: nightly # {EVIL}\n")
    stored.title = stored.description = EVIL
    stored.labels[EVIL] = EVIL
    stored.owner_path = EVIL
    stored.owner_kind = workflow_pb2.OWNER_KIND_FILE
    job = daemon.add_job("job")
    job.title = job.description = EVIL
    record = daemon.add_run("nightly", steps=["one", EVIL])
    run = record.run
    run.caller = run.schedule_id = run.scope = run.progress_message = EVIL
    run.waiting_for = run_pb2.WAITING_FOR_SLOT
    run.waiting_steps.append(EVIL)
    run.params.update({EVIL: {"deep": [EVIL]}})
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING)
    daemon.write(record, "one", EVIL.encode() + b"\n")
    daemon.write(record, EVIL, b"harmless\n")
    daemon.write(record, "one", EVIL.encode(), stream=run_pb2.LOG_STREAM_SYSTEM)
    daemon.step(record, "one", run_pb2.STEP_STATE_FAILED, exit_code=1, reason=EVIL, progress_message=EVIL)
    daemon.step(record, EVIL, run_pb2.STEP_STATE_SKIPPED, reason=EVIL)
    daemon.add_letter(record, EVIL, EVIL)
    daemon.finish(record, run_pb2.RUN_STATE_FAILED, EVIL)
    event = daemon.add_event("PAID", json.dumps({EVIL: EVIL}, ensure_ascii=False), dedupe_key=EVIL)
    event.reason = event.source_step = EVIL
    event.source = event_pb2.EVENT_SOURCE_STEP
    daemon.schedules["s"] = schedule_pb2.Schedule(id="s", subject=EVIL, understood=EVIL, request=EVIL, dedupe_key=EVIL)
    daemon.explanation.sentences.append(EVIL)
    daemon.fires.append(workflow_pb2.Fire(detail=EVIL, schedule_id=EVIL))
    daemon.findings.append(system_pb2.Finding(check=EVIL, detail=EVIL, hint=EVIL))
    daemon.info.state_dir = daemon.info.version = EVIL
    user = run_pb2.LockUser(workflow=EVIL, step=EVIL)
    daemon.locks.append(system_pb2.Lock(name=EVIL, size=1, holders=[user], waiting=[user]))
    secret = secret_pb2.Secret(name="KEY", workflows=[EVIL], provider=EVIL, provider_key=EVIL, created_by=EVIL)
    secret.updated_by = secret.last_used_by = EVIL
    daemon.secrets.append(secret)
    narrowing = access_pb2.Narrowing(workflows=[EVIL], labels={EVIL: EVIL})
    daemon.access.identity.MergeFrom(access_pb2.Identity(name=EVIL, narrowing=narrowing, aliases=[EVIL]))
    daemon.access.add_token(EVIL, access_rule_pb2.ROLE_VIEWER, narrowing=narrowing)
    daemon.access.add_entry(EVIL, EVIL, EVIL, source=EVIL, request_id=EVIL, reason=EVIL, detail=f"{EVIL}\n+{EVIL}")
    daemon.access.doors.MergeFrom(access_pb2.GetAccessResponse(daemon_user=EVIL, step_user=EVIL))
    daemon.access.doors.doors.add(address=EVIL)
    return record


def commands(record: RunRecord, event_id: str, letter_id: str) -> list[list[str]]:
    run_id = record.run.id
    return [
        ["runs", "list"],
        ["runs", "show", run_id],
        ["runs", "show", run_id, "--all-steps"],
        ["runs", "watch", run_id],
        ["workflows", "list"],
        ["workflows", "show", "nightly"],
        ["workflows", "versions", "nightly"],
        ["jobs", "list"],
        ["jobs", "show", "job"],
        ["events", "list"],
        ["events", "show", event_id],
        ["dead-letters", "list"],
        ["dead-letters", "show", letter_id],
        ["schedules", "list"],
        ["schedules", "show", "s"],
        ["why", "nightly"],
        ["system", "info"],
        ["system", "doctor"],
        ["locks"],
        ["processes", "list"],
        ["workflows", "next"],
        ["status"],
        ["status", "nightly"],
        ["top", "--once"],
        ["secrets", "list"],
        ["secrets", "show", "KEY"],
        ["whoami"],
        ["access"],
        ["tokens", "list"],
        ["audit", "list"],
        ["audit", "show", "1"],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_that_a_terminal_obeys_is_printed(cli: Cli, daemon: FakeDaemon, evil: RunRecord, form: str) -> None:
    (letter,) = daemon.letters
    shown = 0
    for command in commands(evil, daemon.events[0].id, letter):
        result = cli(*command, "-o", form)
        assert result.code != 70, (command, result.err)
        assert not CONTROLS.search(result.out), command
        assert not CONTROLS.search(result.err), command
        shown += "\\u202e" in result.out.lower()
    if form != "name":
        assert shown >= 20


class _Display(io.TextIOWrapper):
    """Takes what a terminal would get."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_only_colors(daemon: FakeDaemon, evil: RunRecord) -> None:
    (letter,) = daemon.letters
    daemon.fail["ListFires"] = (grpc.StatusCode.FAILED_PRECONDITION, EVIL, ())
    evil.run.steps[0].artifacts.add(name="out", path=EVIL, type=EVIL, files=1)
    header = run_pb2.ArtifactHeader(file_name=EVIL)
    evil.contents["one", "out", ""] = (header, EVIL.encode()[:9], EVIL.encode()[9:])
    further = [
        ["logs", evil.run.id],
        ["runs", "artifacts", evil.run.id],
        ["runs", "artifacts", evil.run.id, "--download", "out", "--to", "-"],
    ]
    refused = [["workflows", "history", "nightly"], ["runs", "show", EVIL], [EVIL], ["logs", f"--{EVIL}"]]
    escaped = 0
    for command in (*commands(evil, daemon.events[0].id, letter), *further, *refused):
        written = io.BytesIO(), io.BytesIO()
        out, err = (_Display(each, "utf-8") for each in written)
        with patch.multiple(sys, stdout=out, stderr=err):
            code = main(["--server", daemon.address, *command])
        assert code != 70, command
        text = b"".join(each.getvalue() for each in written).decode()
        left = re.sub(r"\x1b\[[0-9;]*m|\r\x1b\[K|\x1b\[\?25[hl]|\x1b\[[0-9]*[AGK]|\r\n", "", text)
        assert not CONTROLS.search(left.replace("\t", "")), (command, left)
        escaped += "\\x1b[2J" in left
    assert escaped >= 24


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_every_character_as_it_is(cli: Cli, evil: RunRecord, form: str) -> None:
    result = cli("runs", "show", evil.run.id, "-o", form)
    assert result.code == 0
    data: Any = json.loads(result.raw) if form == "json" else YAML(typ="safe").load(result.out)
    assert data["error_message"] == EVIL
    assert data["params"] == {EVIL: {"deep": [EVIL]}}


def test_a_harmless_text_stays_readable(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly").title = "夜間 😀 [bold]レポート[/bold] ✓"
    for form in ("table", "json", "yaml"):
        assert "夜間 😀 [bold]レポート[/bold] ✓" in cli("workflows", "list", "-o", form).out


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
@pytest.mark.parametrize("command", [["runs", "list"], ["runs", "show"], ["runs", "watch"]])
def test_a_terminal_gets_no_sequences_but_ours(
    on_terminal: OnTerminal, daemon: FakeDaemon, evil: RunRecord, command: list[str]
) -> None:
    arguments = command if command[-1] == "list" else [*command, evil.run.id]
    terminal = on_terminal("--server", daemon.address, *arguments, columns=1000)
    terminal.end()
    left = re.sub(r"\x1b\[[0-9;]*m|\r\n|\x1b\[\?25[hl]|\x1b\[[0-9]*[AGK]", "", terminal.raw.decode())
    assert not CONTROLS.search(left.replace("\n", "").replace("\r", ""))
    assert "\\x1b[2J" in left
    assert b"\x1b[31m" in terminal.raw


@pytest.mark.parametrize("prefixed", [True, False])
def test_logs_are_raw_and_what_toban_adds_is_not(cli: Cli, evil: RunRecord, prefixed: bool) -> None:
    step = [] if prefixed else ["--step", "one"]
    result = cli("logs", evil.run.id, *step)
    assert EVIL.encode() + b"\n" in result.raw
    rest = result.raw.replace(EVIL.encode(), b"", 1).decode() + result.err
    assert not CONTROLS.search(rest)
    assert "\\x1b[2J" in rest


def test_errors_of_the_daemon_and_words_of_the_user_are_escaped(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.fail["GetRun"] = (grpc.StatusCode.NOT_FOUND, EVIL, ())
    for command in (["runs", "show", "x"], ["runs", "show", "x\x1b[2J"], ["run", "\u202ex"]):
        result = cli(*command)
        assert result.code not in (0, 70)
        assert not CONTROLS.search(result.err)


def test_the_text_of_a_definition_is_exact_in_a_file_and_escaped_on_a_terminal(
    cli: Cli, daemon: FakeDaemon, on_terminal: OnTerminal
) -> None:
    daemon.add_workflow("nightly", "name: nightly # \u202e\n")
    command = ["workflows", "show", "nightly", "--source"]
    assert cli(*command).raw == "name: nightly # \u202e\n".encode()
    if sys.platform != "win32":
        terminal = on_terminal("--server", daemon.address, *command)
        assert terminal.end() == 0
        assert terminal.raw == b"name: nightly # \\u202e\r\n"


def test_runs_show_cuts_a_long_line_and_a_large_parameter(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    record = daemon.add_run("nightly", steps=["one"])
    record.run.params.update({"large": "p" * 1_000_000})
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING)
    for _ in range(8):
        daemon.write(record, "one", b"x" * 3_000_000)
    daemon.write(record, "one", b"\nthe end\n")
    daemon.step(record, "one", run_pb2.STEP_STATE_FAILED, exit_code=1, reason="r" * 100_000)
    daemon.finish(record, run_pb2.RUN_STATE_FAILED, "e" * 100_000)
    result = cli("runs", "show", record.run.id)
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) < 12_000
    assert f"  {'x' * 1000}… (23,999,000 more characters)\n  the end\n" in result.out
    assert re.search(r'parameters: *{"large": "p{989}… \(999,0\d\d more characters\)\n', result.out)
    whole = cli("runs", "show", record.run.id, "-o", "json").data
    assert whole["params"]["large"] == "p" * 1_000_000


def test_of_a_line_of_many_megabytes_the_beginning_is_shown() -> None:
    last = LastLines(3)
    last.feed(b"before\n")
    for _ in range(1000):
        last.feed("長い行".encode() * 1000)
    last.feed(b"\n\nlast")
    assert last.shown() == ["長い行" * 333 + "長… (2,999,000 more characters)", "", "last"]


def test_of_a_progress_bar_the_last_state_is_shown() -> None:
    last = LastLines(2)
    last.feed(b"begin" + b"\r 10%" * 100_000 + b"\r 99%\nend")
    assert last.shown() == [" 99%", "end"]


HALF = os.fsdecode(b"caf\xe9") if sys.platform != "win32" else "caf\ud800"


@pytest.mark.parametrize(
    "command",
    [
        ["run", HALF],
        ["run", "nightly", "-p", f"day={HALF}"],
        ["run", "nightly", "-p", f"{HALF}=1"],
        ["run", "nightly", "--step", HALF],
        ["runs", "cancel", "x", "--reason", HALF],
        ["runs", "show", HALF],
        ["runs", "list", "--workflow", HALF],
        ["logs", HALF],
        ["emit", HALF],
        ["emit", "PAID", "-d", HALF],
        ["emit", "PAID", "-d", f'{{"a": "{HALF}"}}'],
        ["emit", "PAID", "-d", r'{"a": "\ud800"}'],
        ["emit", "PAID", "--dedupe-key", HALF],
        ["events", "show", HALF],
        ["workflows", "show", HALF],
        ["workflows", "list", "--label", f"a={HALF}"],
        ["schedule", HALF, "tomorrow", "--action", "x"],
        ["schedule", "x", HALF, "--action", "x"],
        ["schedules", "list", "--subject", HALF],
        ["dead-letters", "show", HALF],
        ["apply", HALF],
        ["validate", HALF],
        ["--server", HALF, "runs", "list"],
        ["why", HALF],
    ],
    ids=lambda command: " ".join(command).encode(errors="backslashreplace").decode(),
)
def test_halves_of_characters_on_the_command_line_are_errors_of_use(
    cli: Cli, daemon: FakeDaemon, command: list[str]
) -> None:
    daemon.add_workflow("nightly")
    result = cli(*command)
    assert result.code != 70, result.err
    assert result.code in (2, 3, 5, 7), result.err
    assert result.err.startswith("toban: ")


def test_json_with_escapes_for_an_emoji_is_read_as_the_emoji(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("emit", "PAID", "-d", r'{"a": "\ud83d\ude00"}').code == 0
    assert json.loads(daemon.events[-1].payload_json) == {"a": "😀"}


def test_a_file_of_parameters_with_escapes_for_an_emoji(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.add_workflow("nightly")
    (tmp_path / "params.json").write_text(r'{"a": "\ud83d\ude00"}')
    assert cli("run", "nightly", "--params-file", str(tmp_path / "params.json")).code == 0
    request = next(each for each in daemon.seen if isinstance(each, run_pb2.StartRunRequest))
    assert request.params["a"] == "😀"
