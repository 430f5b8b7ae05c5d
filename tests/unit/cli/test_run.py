from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.rpc import error_details_pb2

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon, RunRecord
from doubles.daemon.fake_errors import info
from toban.v1 import run_pb2

from .conftest import Cli, Program

SUCCEEDED = run_pb2.RUN_STATE_SUCCEEDED


def the_run(daemon: FakeDaemon) -> RunRecord:
    (record,) = daemon.runs.values()
    return record


def params(daemon: FakeDaemon) -> Any:
    return MessageToDict(the_run(daemon).run.params)


@pytest.fixture
def nightly(daemon: FakeDaemon) -> FakeDaemon:
    daemon.add_workflow("nightly")
    return daemon


def test_start(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("run", "nightly")
    run = the_run(nightly).run
    assert (result.code, result.out, result.err) == (0, f"started nightly#1 ({run.id})\n", "")
    assert run.triggered_by == run_pb2.TRIGGER_MANUAL


def test_start_for_programs(cli: Cli, nightly: FakeDaemon) -> None:
    first = cli("run", "nightly", "-o", "name", "--request-id", "7")
    again = cli("run", "nightly", "-o", "json", "--request-id", "7")
    assert first.out == f"{the_run(nightly).run.id}\n"
    assert again.data["id"] == the_run(nightly).run.id
    assert again.data["state"] == "pending"


def test_parameters(cli: Cli, nightly: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("day: monday\nn: 3\nat: 2026-02-01\nlist: [1, {a: true}]\nnone: ~\n")
    result = cli("run", "nightly", "--params-file", str(file), "-p", "day=a=b", "-p", "empty=")
    assert result.code == 0
    assert params(nightly) == {
        "day": "a=b",
        "n": 3,
        "at": "2026-02-01",
        "list": [1, {"a": True}],
        "none": None,
        "empty": "",
    }


def test_parameters_from_standard_input(cli: Cli, nightly: FakeDaemon) -> None:
    assert cli("run", "nightly", "--params-file", "-", stdin=b'{"a": "x"}').code == 0
    assert params(nightly) == {"a": "x"}


def test_characters_that_json_escapes_in_two_halves_are_whole(cli: Cli, nightly: FakeDaemon) -> None:
    given = b'{"a": "\\ud83d\\ude00", "\\ud83d\\ude00": ["\\ud83d\\ude00"]}'
    assert cli("run", "nightly", "--params-file", "-", stdin=given).code == 0
    assert params(nightly) == {"a": "\U0001f600", "\U0001f600": ["\U0001f600"]}


def test_a_parameter_that_is_not_utf8(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("run", "nightly", "-p", "a=\udcff", "-p", "b=1")
    assert result.code == 2
    assert result.err.splitlines()[0] == "toban: cannot read the parameters"
    assert "not UTF-8" in result.err
    assert nightly.runs == {}


def test_words_that_are_no_parameters(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("run", "nightly", "-p", "a", "-p", "=b", "-p", "c=d")
    assert result.code == 2
    assert result.err.splitlines() == [
        "toban: cannot read the parameters",
        "  a: expected key=value",
        "  =b: expected key=value",
    ]
    assert nightly.runs == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[1, 2]", "expected a mapping"),
        (b"1: 2", "expected a mapping"),
        (b"a: [", "2:1: "),
        (b"a: \xff", "not UTF-8"),
        (b"a: 1\n---\nb: 2", "found 2 documents, expected one"),
        (b'{"a": "\\ud83d"}', "1:7: the text contains a character that cannot be passed to a process"),
        (b"x: &a {k: 1}\ny:\n" + b"  <<: *a\n" * 3_000, "3:3: found more than 5,000 values"),
        (None, "No such file or directory"),
    ],
)
def test_files_that_hold_no_parameters(
    cli: Cli, nightly: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes | None, reason: str
) -> None:
    monkeypatch.setattr("toban.definition.source.yaml_source.MAX_EXPANDED_NODES", 5_000)
    file = tmp_path / "params.yaml"
    if text is not None:
        file.write_bytes(text + b"\n")
    result = cli("run", "nightly", "--params-file", str(file))
    assert result.code == 2
    assert result.err.startswith(f"toban: cannot read the parameters in {file}: {reason}")
    assert nightly.runs == {}


def test_each_wrong_parameter_is_listed_once(cli: Cli, nightly: FakeDaemon) -> None:
    field = error_details_pb2.BadRequest.FieldViolation
    violations = [
        field(field="params.n", description="expected an integer"),
        field(field="params.zz", description="unknown parameter (known: n)"),
    ]
    nightly.fail["StartRun"] = (
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid parameters: n: expected an integer; zz: unknown parameter (known: n)",
        (info("INVALID_PARAMS"), error_details_pb2.BadRequest(field_violations=violations)),
    )
    result = cli("run", "nightly", "-p", "n=x", "-p", "zz=1")
    assert result.code == 2
    assert result.err.splitlines() == [
        "toban: cannot start a run of nightly: invalid parameters",
        "  n: expected an integer",
        "  zz: unknown parameter (known: n)",
    ]


ENDS = [
    (run_pb2.RUN_STATE_SUCCEEDED, 0, "succeeded"),
    (run_pb2.RUN_STATE_FAILED, 1, "failed"),
    (run_pb2.RUN_STATE_TIMED_OUT, 124, "timed out"),
    (run_pb2.RUN_STATE_CANCELLED, 130, "cancelled"),
]


@pytest.mark.parametrize("how", ["--wait", "--follow"])
@pytest.mark.parametrize(("state", "code", "word"), ENDS)
def test_the_result_is_the_exit_code(
    cli: Cli,
    nightly: FakeDaemon,
    how: str,
    state: run_pb2.RunState.ValueType,
    code: int,
    word: str,
) -> None:
    nightly.on_call["WatchRun"] = lambda: nightly.finish(
        the_run(nightly), state, "" if code == 0 else "step one: exit code 3"
    )
    result = cli("run", "nightly", how)
    assert result.code == code
    last = result.out.splitlines()[-1]
    why = "" if code == 0 else ": step one: exit code 3"
    assert re.fullmatch(rf"nightly#1 {word} after (\d+m )?[\d.]+m?s{why}", last)
    assert result.err.startswith(f"started nightly#1 ({the_run(nightly).run.id})\n")
    assert ("`toban runs show nightly#1`" in result.err) is (code != 0)


def test_success_with_failures_is_told(cli: Cli, nightly: FakeDaemon) -> None:
    def fail_and_succeed() -> None:
        record = the_run(nightly)
        nightly.step(record, "one", run_pb2.STEP_STATE_FAILED, exit_code=3)
        nightly.finish(record, SUCCEEDED)

    nightly.on_call["WatchRun"] = fail_and_succeed
    result = cli("run", "nightly", "--wait")
    assert result.code == 0
    assert "nightly#1 succeeded with failures after " in result.out
    assert "toban: warning: nightly#1 succeeded, but 1 step failed\n" in result.err
    shown = cli("runs", "show", "nightly")
    assert shown.code == 0
    assert "state:      succeeded with failures" in shown.out
    assert "warning" in shown.err


def test_waiting_for_programs(cli: Cli, nightly: FakeDaemon) -> None:
    nightly.on_call["WatchRun"] = lambda: nightly.finish(the_run(nightly), SUCCEEDED)
    result = cli("run", "nightly", "--wait", "-o", "json")
    assert result.data["state"] == "succeeded"
    assert [step["id"] for step in result.data["steps"]] == ["one"]
    name = cli("run", "nightly", "--wait", "-o", "name", "--request-id", "x")
    assert len(name.out.split()) == 1
    assert "started" not in name.err


def test_following_for_programs(cli: Cli, nightly: FakeDaemon) -> None:
    nightly.on_call["WatchRun"] = lambda: nightly.finish(the_run(nightly), SUCCEEDED)
    result = cli("run", "nightly", "--follow", "-o", "json")
    assert [change["run"]["state"] for change in result.objects] == ["succeeded"]


def test_following_without_a_terminal(cli: Cli, nightly: FakeDaemon) -> None:
    def work() -> None:
        record = the_run(nightly)
        nightly.step(record, "one", run_pb2.STEP_STATE_RUNNING)
        nightly.write(record, "one", b"hello\nwor", b"ld\n")
        nightly.write(record, "one", b"oops", stream=run_pb2.LOG_STREAM_STDERR)
        nightly.step(record, "one", run_pb2.STEP_STATE_FAILED, exit_code=3)
        nightly.finish(record, run_pb2.RUN_STATE_FAILED, "step one failed")

    nightly.on_call["StreamLogs"] = work
    result = cli("run", "nightly", "--follow")
    assert result.code == 1
    assert result.out.splitlines()[:3] == ["one | hello", "one | world", "one | oops"]
    assert "\x1b" not in result.out
    assert "toban: step one failed after " in result.err
    assert "exit code 3" in result.err


def test_both_ways_of_waiting_at_once(cli: Cli, nightly: FakeDaemon) -> None:
    assert cli("run", "nightly", "--wait", "--follow").code == 2
    assert nightly.runs == {}


def test_ctrl_c_detaches(program: Program, nightly: FakeDaemon) -> None:
    toban = program("--server", nightly.address, "run", "nightly", "--wait")
    nightly.wait_for("WatchRun")
    toban.send_signal(signal.SIGINT)
    output, errors = toban.communicate(timeout=DEADLINE)
    run = the_run(nightly).run
    assert toban.returncode == 131
    assert output == b""
    assert errors.decode().splitlines()[1:] == [
        "toban: detached; run nightly#1 continues",
        ("hint: `toban runs watch nightly#1` waits for it, `toban logs -f nightly#1` shows its output"),
    ]
    assert run.state == run_pb2.RUN_STATE_RUNNING


def test_a_restart_of_the_daemon_is_not_noticed(program: Program, nightly: FakeDaemon) -> None:
    toban = program("--server", nightly.address, "run", "nightly", "--follow", "-o", "table")
    nightly.wait_for("StreamLogs")
    nightly.wait_for("WatchRun")
    record = the_run(nightly)
    nightly.write(record, "one", b"before\n")
    nightly.stop()
    nightly.write(record, "one", b"meanwhile\n")
    nightly.start()
    nightly.write(record, "one", b"after\n")
    nightly.finish(record, SUCCEEDED)
    output, errors = toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 0
    assert output.decode().splitlines()[:3] == ["one | before", "one | meanwhile", "one | after"]
    assert len(errors.decode().splitlines()) == 1


def test_params_are_shown_as_they_were_given(cli: Cli, nightly: FakeDaemon) -> None:
    cli("run", "nightly", "--params-file", "-", stdin=b'{"n": 3, "x": 0.5, "l": [1]}')
    shown = cli("runs", "show", "nightly", "-o", "json").data["params"]
    assert json.dumps(shown, sort_keys=True) == '{"l": [1], "n": 3, "x": 0.5}'


def test_a_part_of_a_workflow(cli: Cli, nightly: FakeDaemon) -> None:
    old = nightly.add_run("nightly", state=SUCCEEDED)
    result = cli("run", "nightly", "--only", "a", "--only", "b", "--from-run", "nightly#1")
    assert result.code == 0
    asked = nightly.seen[-1]
    assert isinstance(asked, run_pb2.StartRunRequest)
    assert (list(asked.only), asked.from_run) == (["a", "b"], old.run.id)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [(["--scope", "publish"], "scope", "publish"), (["--from", "build"], "from_steps", ["build"])],
)
def test_other_parts(cli: Cli, nightly: FakeDaemon, arguments: list[str], field: str, value: object) -> None:
    assert cli("run", "nightly", *arguments).code == 0
    asked = getattr(nightly.seen[-1], field)
    assert (asked if isinstance(asked, str) else list(asked)) == value


def test_labels_of_a_run(cli: Cli, nightly: FakeDaemon) -> None:
    assert cli("run", "nightly", "--label", "ticket=OPS-17", "-l", "team=a").code == 0
    asked = nightly.seen[-1]
    assert isinstance(asked, run_pb2.StartRunRequest)
    assert asked.labels == {"ticket": "OPS-17", "team": "a"}
    assert cli("run", "nightly", "--label", "ticket").code == 2
    assert "LABELS" in cli("runs", "list", "-l", "team=a", "-p", "day=monday", "--text", "no space").out
    listed = nightly.seen[-1]
    assert isinstance(listed, run_pb2.ListRunsRequest)
    assert (dict(listed.labels), dict(listed.params)) == ({"team": "a"}, {"day": "monday"})
    assert listed.text == "no space"
    assert re.search("^labels: +team=a, ticket=OPS-17$", cli("runs", "show", "nightly").out, re.MULTILINE)


def test_a_defined_scope_full_is_told(cli: Cli, nightly: FakeDaemon) -> None:
    assert " with the steps" not in cli("run", "nightly").out
    nightly.plan.definition_scope = "full"
    nightly.runs.clear()
    told = cli("run", "nightly")
    assert told.out.startswith("started nightly#1 (")
    assert told.out.endswith(") with the steps of its scope full\n")
    nightly.runs.clear()
    assert " with the steps" not in cli("run", "nightly", "--scope", "full").out
    shown = cli("runs", "show", "nightly").out
    assert re.search("^scope: +full, as the workflow defines it$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry-run", "--wait"], "it starts no run"),
        (["--dry-run", "--follow"], "it starts no run"),
    ],
)
def test_what_does_not_go_together(cli: Cli, nightly: FakeDaemon, arguments: list[str], message: str) -> None:
    result = cli("run", "nightly", *arguments)
    assert result.code == 2
    assert message in result.err
    assert nightly.calls.total() == 0


def test_a_dry_run(cli: Cli, nightly: FakeDaemon) -> None:
    old = nightly.add_run("nightly", state=SUCCEEDED).run.id
    nightly.plan.CopyFrom(
        run_pb2.PlanRunResponse(
            workflow="nightly",
            version=3,
            steps=[
                run_pb2.PlannedStep(
                    id="fetch", command="curl x", skip_reason=run_pb2.SKIP_REASON_SCOPE, source_run=old
                ),
                run_pb2.PlannedStep(
                    id="build",
                    command="make monday",
                    depends_on=["fetch"],
                    when="params.day != ''",
                    for_each="params.regions",
                    max_iterations=5,
                ),
            ],
        )
    )
    result = cli("run", "nightly", "--from", "build", "-p", "day=monday", "--dry-run")
    assert result.code == 0
    header, first, second = result.out.splitlines()
    assert header.split() == ["STEP", "RUNS", "AFTER", "NOTE"]
    assert first.split(maxsplit=3) == ["fetch", "-", "-", "not selected, results of nightly#1"]
    assert second.split("  ")[:2] == ["build", "make monday"]
    note = "when params.day != '', for each of params.regions, up to 5 iterations"
    assert second.endswith(f"fetch  {note}")
    told = "nightly (version 3) would run 1 of 2 steps; nothing was started\n"
    assert result.err == told
    assert nightly.calls["StartRun"] == 0
    assert cli("run", "nightly", "--dry-run", "-o", "name").out == "build\n"
    assert cli("run", "nightly", "--dry-run", "-o", "json").data["version"] == 3


def test_a_dry_run_of_nothing(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("run", "nightyl", "--dry-run")
    assert result.code == 5
    assert result.err.startswith("toban: cannot plan a run of nightyl: ")


def test_a_success_with_something_missing(cli: Cli, nightly: FakeDaemon) -> None:
    def work() -> None:
        record = the_run(nightly)
        record.run.incomplete_steps = 1
        nightly.finish(record, SUCCEEDED)

    nightly.on_call["WatchRun"] = work
    result = cli("run", "nightly", "--wait")
    assert result.code == 0
    assert result.out.startswith("nightly#1 succeeded, incomplete after ")
    assert "toban: warning: nightly#1 succeeded, but 1 step is incomplete\n" in result.err
