"""Emitting events, and what is shown of them."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon
from doubles.daemon.fake_errors import info
from toban.cli.human_text import width
from toban.sdk import SyncClient
from toban.v1 import event_pb2, run_pb2, workflow_pb2

from .conftest import Cli, Program


@pytest.fixture(autouse=True)
def listening(daemon: FakeDaemon) -> None:
    for name in ("invoices", "ledger"):
        daemon.add_workflow(name)
    daemon.listeners["ORDER_PAID"] = ["invoices", "ledger"]


def run_ids(daemon: FakeDaemon) -> list[str]:
    return list(daemon.runs)


def end_all(daemon: FakeDaemon, *states: run_pb2.RunState.ValueType) -> None:
    """Lets the runs end so, when they are watched."""
    remaining = list(states)

    def finish() -> None:
        for record, state in zip(list(daemon.runs.values()), remaining, strict=True):
            if not record.run.HasField("finished_at"):
                daemon.finish(record, state)

    daemon.on_call["WatchRun"] = finish


def test_emit_tells_what_it_started(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("emit", "ORDER_PAID", "-d", '{"order": 7, "名": "注文"}')
    (event,) = daemon.events
    first, second = run_ids(daemon)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        f"emitted ORDER_PAID ({event.id})",
        f"started invoices#1 ({first})",
        f"started ledger#1 ({second})",
    ]
    assert json.loads(event.payload_json) == {"order": 7, "名": "注文"}


def test_emit_for_programs(cli: Cli, daemon: FakeDaemon) -> None:
    named = cli("emit", "ORDER_PAID", "-o", "name", "--dedupe-key", "k")
    assert named.out == f"{daemon.events[0].id}\n"
    data = cli("emit", "ORDER_PAID", "-o", "json", "--dedupe-key", "k").data
    assert (data["id"], data["created"]) == (daemon.events[0].id, False)
    assert [run["workflow"] for run in data["runs"]] == ["invoices", "ledger"]
    assert data["payload_json"] == "{}"
    assert cli("emit", "OTHER", "-o", "json").data["created"] is True


def test_a_repeat_is_harmless(cli: Cli, daemon: FakeDaemon) -> None:
    first = cli("emit", "ORDER_PAID", "--request-id", "one", "-o", "name").out
    assert cli("emit", "ORDER_PAID", "--request-id", "one", "-o", "name").out == first
    assert len(daemon.events) == 1
    cli("emit", "ORDER_PAID", "--dedupe-key", "k")
    again = cli("emit", "ORDER_PAID", "--dedupe-key", "k")
    told, *lines = again.out.splitlines()
    assert told == f"already emitted with this key: ORDER_PAID ({daemon.events[1].id})"
    assert [line.split()[1] for line in lines] == ["invoices#2", "ledger#2"]


def test_emit_what_nothing_listens_to(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("emit", "OTHER")
    assert result.out.splitlines()[1:] == ["started no runs: no current definition listens to it"]
    daemon.resolution.candidates.add(workflow="ledger", reason="event.payload.order > 3 is false")
    result = cli("emit", "OTHER", "-d", "[1]")
    assert result.out.splitlines()[1:] == [
        "started no runs: 1 current definition listens to it",
        "not started: ledger: event.payload.order > 3 is false",
    ]
    assert cli("emit", "OTHER", "--wait").code == 0


def test_why_nothing_was_started_is_asked_of_the_event_itself(cli: Cli, daemon: FakeDaemon) -> None:
    """One like it, from outside, may be another one to a condition."""
    cli("emit", "OTHER", "-d", "[1]")
    assert daemon.seen[-1] == event_pb2.ResolveEventRequest(event_id=daemon.events[0].id)
    daemon.resolution.candidates.add(workflow="ledger", matches=True, reason="it is true")
    # The definition came between the event and the question.
    lines = cli("emit", "OTHER").out.splitlines()
    assert lines[-1] == "would start now: ledger: it is true"


def test_one_that_could_not_be_resolved_says_so(cli: Cli, daemon: FakeDaemon) -> None:
    event = daemon.add_event("OTHER")
    event.reason = "cannot resolve it: see the log"
    told = cli("events", "show", event.id)
    assert told.err == "started no runs\n"
    assert "resolved: cannot resolve it: see the log" in told.out


def test_what_stood_in_the_way_is_told(cli: Cli, daemon: FakeDaemon) -> None:
    event = daemon.add_event("ORDER_PAID", dedupe_key="k")
    event.runs[1].run_id, event.runs[1].detail = "", "run x is active"
    event.runs[1].reason = workflow_pb2.NOT_STARTED_REASON_OVERLAP
    event.runs[1].outcome = event_pb2.EVENT_RUN_OUTCOME_SKIPPED
    lines = cli("emit", "ORDER_PAID", "--dedupe-key", "k").out.splitlines()
    assert lines[2] == "skipped ledger: overlap: run x is active"
    assert "started invoices; skipped ledger" in cli("events", "list").out
    event.runs[1].reason = workflow_pb2.NOT_STARTED_REASON_DEBOUNCED
    event.runs[1].detail = "waits for further events until 2026-02-01 09:00:00 UTC"
    lines = cli("emit", "ORDER_PAID", "--dedupe-key", "k").out.splitlines()
    assert lines[2] == "debounced ledger: waits for further events until 2026-02-01 09:00:00 UTC"
    assert "started invoices; debounced ledger" in cli("events", "list").out
    del event.runs[:]
    event.state, event.reason = event_pb2.EVENT_STATE_CUT, "16 runs are before it"
    lines = cli("emit", "ORDER_PAID", "--dedupe-key", "k").out.splitlines()
    assert lines[1:] == ["cut: 16 runs are before it"]
    event.state, event.reason = event_pb2.EVENT_STATE_PENDING, "draining"
    pending = cli("emit", "ORDER_PAID", "--dedupe-key", "k")
    assert pending.code == 0
    assert pending.err.splitlines() == [
        "pending: draining; its runs start later",
        f"hint: `toban events show {event.id}` shows its state",
    ]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("SUCCEEDED", "SUCCEEDED"), 0),
        (("CANCELLED", "FAILED"), 1),
        (("TIMED_OUT", "CANCELLED"), 124),
        (("SUCCEEDED", "CANCELLED"), 130),
    ],
)
def test_emit_and_wait(cli: Cli, daemon: FakeDaemon, states: tuple[str, str], code: int) -> None:
    end_all(daemon, *(run_pb2.RunState.Value(f"RUN_STATE_{state}") for state in states))
    result = cli("emit", "ORDER_PAID", "--wait")
    assert result.code == code
    assert result.err.startswith(f"emitted ORDER_PAID ({daemon.events[0].id})\nstarted invoices#1 ")
    told = sorted(line.split(" after ")[0] for line in result.out.splitlines())
    words = [state.lower().replace("_", " ") for state in states]
    assert told == [f"invoices#1 {words[0]}", f"ledger#1 {words[1]}"]


def test_emit_and_wait_for_programs(cli: Cli, daemon: FakeDaemon) -> None:
    end_all(daemon, run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED)
    result = cli("emit", "ORDER_PAID", "--wait", "-o", "json")
    assert result.code == 1
    assert result.data["all_ended"] is True
    assert [run["run_state"] for run in result.data["runs"]] == [
        "succeeded",
        "failed",
    ]
    end_all(daemon, *(4 * [run_pb2.RUN_STATE_SUCCEEDED]))
    named = cli("emit", "ORDER_PAID", "--wait", "-o", "name")
    assert (named.code, named.out) == (0, f"{daemon.events[1].id}\n")


def test_waiting_begins_when_it_is_resolved(cli: Cli, daemon: FakeDaemon) -> None:
    event = daemon.add_event("ORDER_PAID", dedupe_key="k")
    runs = list(event.runs)
    del event.runs[:]
    event.state, event.reason = event_pb2.EVENT_STATE_PENDING, "draining"

    def resolved() -> None:
        event.state, event.reason = event_pb2.EVENT_STATE_RESOLVED, ""
        event.runs.extend(runs)

    daemon.on_call["WatchEvents"] = resolved
    end_all(daemon, run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_SUCCEEDED)
    result = cli("emit", "ORDER_PAID", "--dedupe-key", "k", "--wait")
    assert result.code == 0
    assert result.err.splitlines()[1:] == ["pending: draining", "started invoices, ledger"]
    assert len(result.out.splitlines()) == 2


def test_a_run_that_is_gone_is_not_waited_for(cli: Cli, daemon: FakeDaemon) -> None:
    event = daemon.add_event("ORDER_PAID", dedupe_key="k")
    daemon.runs.clear()
    result = cli("emit", "ORDER_PAID", "--dedupe-key", "k", "--wait")
    assert (result.code, result.out) == (0, "")
    assert f"run {event.runs[0].run_id} was deleted: its result is unknown" in result.err
    assert cli("events", "show", event.id).out.count("deleted") == 2


def test_ctrl_c_detaches_from_what_was_started(program: Program, daemon: FakeDaemon) -> None:
    toban = program("--server", daemon.address, "emit", "ORDER_PAID", "--wait")
    daemon.wait_for("WatchRun", 2)
    toban.send_signal(signal.SIGINT)
    _, err = toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 131
    (event,) = daemon.events
    assert f"detached; the runs of event {event.id} continue" in err.decode()


def test_the_payload_from_elsewhere(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_bytes(b"\xef\xbb\xbf[1, 2]\n")
    assert cli("emit", "A", "-d", f"@{file}").code == 0
    assert cli("emit", "A", "-d", "@-", stdin=b'"text"').code == 0
    assert [event.payload_json for event in daemon.events] == ["[1, 2]", '"text"']


@pytest.mark.parametrize("value", ["null", "0", "false", '""', "[]"])
def test_a_payload_that_is_hardly_one_arrives_as_it_is(cli: Cli, daemon: FakeDaemon, value: str) -> None:
    assert cli("emit", "A", "-d", value).code == 0
    assert daemon.events[0].payload_json == value
    assert cli("events", "resolve", "A", "-d", value).code == 0
    assert daemon.seen[-1] == event_pb2.ResolveEventRequest(type="A", payload_json=value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{order: 7}", "-d: 1:2: expecting property name"),
        ("@nothing.json", "-d @nothing.json: No such file"),
        ("@-", "-d @-: 1:3: expecting ',' delimiter"),
        ("[NaN]", "-d: JSON has no NaN"),
        ("1e999", "-d: a number in it is not finite\n"),
        ('"\\ud800"', "-d: a text in it is not valid Unicode\n"),
        ("[" * 100_000, "-d: nested too deeply"),
        ("\udcff", "-d: not UTF-8"),
        (json.dumps("x" * 1024 * 1024), "-d: must not exceed 64 KiB"),
    ],
)
@pytest.mark.parametrize("verb", [["emit"], ["events", "resolve"]])
def test_no_payload(cli: Cli, daemon: FakeDaemon, verb: list[str], data: str, said: str) -> None:
    result = cli(*verb, "A", "-d", data, stdin=b"[1")
    assert (result.code, result.out, daemon.events) == (2, "", [])
    assert result.err.startswith(f"toban: cannot {verb[-1]} A: {said}")


def test_what_the_daemon_refuses_is_told_in_one_line(cli: Cli, daemon: FakeDaemon) -> None:
    wrong = error_details_pb2.BadRequest()
    wrong.field_violations.add(field="payload_json", description="found 70000 bytes")
    daemon.fail["EmitEvent"] = (
        grpc.StatusCode.INVALID_ARGUMENT,
        "payload_json: found 70000 bytes",
        (info("INVALID_ARGUMENT"), wrong),
    )
    result = cli("emit", "ORDER_PAID")
    assert (result.code, result.err) == (
        2,
        "toban: cannot emit ORDER_PAID: -d: found 70000 bytes\n",
    )


def test_list(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("events", "list").err == "no events\n"
    daemon.add_event("OTHER", json.dumps({"text": "x" * 100}))
    event = daemon.add_event("ORDER_PAID", '{"order":7}')
    event.emitted_at.FromJsonString("2026-02-01T00:15:30Z")
    header, first, second = (re.split("  +", line) for line in cli("events", "list").out.splitlines())
    assert header == ["ID", "TYPE", "EMITTED (JST)", "OUTCOME", "SOURCE", "PAYLOAD"]
    assert first == [
        event.id,
        "ORDER_PAID",
        "2026-02-01 09:15:30",
        "started invoices, ledger",
        "client, uid:1000",
        '{"order":7}',
    ]
    assert second[3] == "started no runs"
    assert second[5] == '{"text": "' + 49 * "x" + "…"
    limited = cli("events", "list", "--limit", "1", "-o", "name")
    assert (limited.out, limited.err[:14]) == (f"{event.id}\n", "more available")
    assert len(cli("events", "list", "--type", "OTHER", "--type", "A", "-o", "json").data) == 1
    assert cli("events", "list", "--type", "A").err == "no events of type A\n"
    daemon.events[0].payload_json, daemon.events[0].payload_bytes = "", 5000
    assert "(4.9 KiB)" in cli("events", "list").out


def test_show(cli: Cli, daemon: FakeDaemon) -> None:
    source = daemon.add_run("nightly").run
    event = daemon.add_event("ORDER_PAID", '{"order":{"id":7},"text":"\x9b2J"}', dedupe_key="k")
    event.depth, event.source_run, event.source_step = 1, source.id, "one"
    event.source = event_pb2.EVENT_SOURCE_STEP
    event.runs[0].priority = 10
    daemon.finish(daemon.runs[event.runs[0].run_id], run_pb2.RUN_STATE_SUCCEEDED)
    result = cli("events", "show", event.id)
    assert (result.code, result.err) == (0, "")
    lines = [re.split("(?<=[a-z]): +|  +", line) for line in result.out.splitlines()]
    for told in (
        ["event", "ORDER_PAID"],
        ["id", event.id],
        ["state", "resolved"],
        ["by", "step one of nightly#1"],
        ["chain", "after 1 run"],
        ["dedupe key", "k"],
        ["all ended", "no"],
        ["WORKFLOW", "PRIORITY", "STATE", "RUN", "ID"],
        ["invoices", "10", "succeeded", "invoices#1", event.runs[0].run_id],
        ["ledger", "0", "running", "ledger#1", event.runs[1].run_id],
    ):
        assert told in lines
    assert result.out.endswith('Payload:\n{\n  "order": {\n    "id": 7\n  },\n  "text": "\\x9b2J"\n}\n')
    assert cli("events", "show", event.id, "-o", "json").data["all_ended"] is False
    assert cli("events", "show", event.id, "-o", "name").out == f"{event.id}\n"
    event.runs[1].run_id, event.runs[1].detail = "", "disk reserve"
    event.runs[1].reason = workflow_pb2.NOT_STARTED_REASON_DISK_FULL
    assert re.search("ledger +0 +not started +- +disk reserve", cli("events", "show", event.id).out)


def test_a_large_payload_takes_no_more_lines_than_it_needs(cli: Cli, daemon: FakeDaemon) -> None:
    long = [{"name": "x" * 60, "text": "課" * 30}]
    payload = {"few": [1, 2], "rows": [{"a": 1}, {}], "many": list(range(1000)), "long": long}
    event = daemon.add_event("OTHER", json.dumps(payload))
    _, told = cli("events", "show", event.id).out.split("Payload:\n")
    assert json.loads(told) == payload
    lines = told.splitlines()
    assert lines[1:3] == ['  "few": [1, 2],', '  "rows": [{"a": 1}, {}],']
    assert lines[3] == '  "many": ['
    assert lines[4].startswith("    0, 1, 2, ")
    assert lines[4].endswith(",")
    assert lines[-7:-1] == [
        '  "long": [',
        "    {",
        f'      "name": "{"x" * 60}",',
        f'      "text": "{"課" * 30}"',
        "    }",
        "  ]",
    ]
    assert all(width(line) <= 100 for line in lines)
    assert len(lines) < 70


def test_show_what_started_nothing(cli: Cli, daemon: FakeDaemon) -> None:
    event = daemon.add_event("OTHER")
    event.source, event.source_run = event_pb2.EVENT_SOURCE_DAEMON, "gone"
    result = cli("events", "show", event.id)
    assert daemon.seen[-1] == event_pb2.ResolveEventRequest(event_id=event.id)
    assert result.err == ("started no runs: no current definition listens to it\n")
    daemon.resolution.candidates.add(workflow="ledger", reason="its condition is false")
    assert cli("events", "show", event.id).err.splitlines() == [
        "started no runs: 1 current definition listens to it",
        "not started: ledger: its condition is false",
    ]
    assert cli("events", "show", event.id, "-o", "json").err == ""
    assert "by:       daemon, about run gone" in result.out.splitlines()
    assert "ayload" not in result.out
    missing = cli("events", "show", "nothing")
    assert missing.code == 5
    assert missing.err.splitlines() == [
        "toban: cannot show event nothing: there is no event nothing",
        "hint: `toban events list` lists the stored events",
    ]


def test_watch(program: Program, daemon: FakeDaemon) -> None:
    daemon.add_event("ORDER_PAID")
    toban = program("--server", daemon.address, "events", "watch", "--type", "ORDER_PAID")
    assert toban.stdout is not None
    assert toban.stderr is not None
    assert toban.stderr.readline() == b"watching events; Ctrl-C stops\n"
    daemon.add_event("OTHER")
    event = daemon.add_event("ORDER_PAID", '{"order":7}')
    # It goes on behind a restart, and nothing comes twice.
    daemon.stop()
    daemon.start()
    second = daemon.add_event("ORDER_PAID")
    lines = [toban.stdout.readline().decode() for _ in range(2)]
    assert re.fullmatch(
        rf"\d{{4}}-\S+ [\d:]+ JST  ORDER_PAID  {event.id}  started invoices, ledger  "
        r'\{"order":7\}\r?\n',
        lines[0],
    )
    assert second.id in lines[1]
    toban.send_signal(signal.SIGINT)
    out, err = toban.communicate(timeout=DEADLINE)
    assert (toban.returncode, out, err) == (130, b"", b"toban: interrupted\n")


def test_watch_for_programs(cli: Cli, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [event_pb2.WatchEventsResponse(sequence=1)]
    for _ in range(2):
        told.append(event_pb2.WatchEventsResponse(event=daemon.add_event("ORDER_PAID")))
    monkeypatch.setattr(SyncClient, "watch_events", lambda client, types: iter(told))
    ids = [event.id for event in daemon.events]
    result = cli("-q", "events", "watch", "-o", "json")
    assert ([data["id"] for data in result.objects], result.err) == (ids, "")
    assert cli("events", "watch", "-o", "name").out.splitlines() == ids


def test_resolve(cli: Cli, daemon: FakeDaemon) -> None:
    nothing = cli("events", "resolve", "OTHER")
    assert (nothing.out, nothing.err) == (
        "",
        "no definition listens to OTHER; nothing was emitted\n",
    )
    daemon.resolution.candidates.add(
        workflow="invoices",
        matches=True,
        priority=10,
        scope="quick",
        condition="event.payload.order > 3",
        reason="its condition is true",
    )
    daemon.resolution.candidates.add(workflow="ledger", reason="disabled")
    daemon.resolution.others = 4
    result = cli("events", "resolve", "ORDER_PAID", "-d", '{"order": 7}')
    rows = [re.split("  +", line) for line in result.out.splitlines()]
    assert rows == [
        ["WORKFLOW", "STARTS", "PRIORITY", "SCOPE", "CONDITION", "REASON"],
        ["invoices", "yes", "10", "quick", "event.payload.order > 3", "its condition is true"],
        ["ledger", "no", "-", "-", "-", "disabled"],
    ]
    assert result.err == "would start 1 run; 4 others do not listen to it; nothing was emitted\n"
    request = daemon.seen[-1]
    assert isinstance(request, event_pb2.ResolveEventRequest)
    assert json.loads(request.payload_json) == {"order": 7}
    assert cli("events", "resolve", "ORDER_PAID", "-o", "name").out == "invoices\n"
    assert cli("events", "resolve", "ORDER_PAID", "-o", "json").data["others"] == 4
    assert daemon.events == []
    daemon.resolution.pending = "the daemon drains"
    assert cli("events", "resolve", "ORDER_PAID").err.splitlines()[1:] == [
        "events stay pending for now: the daemon drains"
    ]


def test_resolve_an_event_that_is_stored(cli: Cli, daemon: FakeDaemon) -> None:
    event = daemon.add_event("OTHER")
    nothing = cli("events", "resolve", "--event", event.id)
    assert daemon.seen[-1] == event_pb2.ResolveEventRequest(event_id=event.id)
    assert nothing.err == (f"no definition listens to event {event.id}; nothing was emitted\n")
    daemon.resolution.candidates.add(workflow="ledger", matches=True)
    daemon.resolution.others = 1
    assert cli("events", "resolve", "--event", event.id).err == (
        "would start 1 run with the current definitions; 1 other does not listen to it; nothing was emitted\n"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "TYPE or --event is missing"),
        (["A", "--event", "e"], "--event excludes TYPE and -d"),
        (["--event", "e", "-d", "1"], "--event excludes TYPE and -d"),
    ],
)
def test_resolve_either_a_type_or_an_event(cli: Cli, daemon: FakeDaemon, given: list[str], said: str) -> None:
    result = cli("events", "resolve", *given)
    assert (result.code, daemon.seen) == (2, [])
    assert result.err.startswith("toban: cannot resolve an event: " + said)


def test_runs_that_an_event_started(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_run("nightly")
    assert "EVENT" not in cli("runs", "list").out
    event = daemon.add_event("ORDER_PAID")
    run = daemon.runs[event.runs[0].run_id].run
    header, *rows = cli("runs", "list").out.splitlines()
    assert header.split()[-2:] == ["EVENT", "ID"]
    assert [f"ORDER_PAID ({event.id})" in row for row in rows] == [True, True, False]
    lines = cli("runs", "show", "invoices").out.splitlines()
    assert "started by: event, uid:1000" in lines
    assert f"event:      ORDER_PAID ({event.id})" in lines
    run.depth = 3
    assert f"({event.id}), after 3 runs in its chain" in cli("runs", "show", "invoices").out


def test_what_events_start_a_workflow(cli: Cli, daemon: FakeDaemon) -> None:
    workflow = daemon.workflows["invoices"]
    assert "started by" not in cli("workflows", "show", "invoices").out
    workflow.event_types.extend(["ORDER_PAID", "ORDER_SENT"])
    told = cli("workflows", "show", "invoices").out
    assert "started by: ORDER_PAID, ORDER_SENT\n" in told
    workflow.enabled = False
    told = cli("workflows", "show", "invoices").out
    assert "ORDER_SENT; disabled, so not started\n" in told


def test_the_daemon_tells_of_events(cli: Cli, daemon: FakeDaemon) -> None:
    assert "events" not in cli("system", "info").out
    daemon.info.event_concurrency, daemon.info.event_runs = 10, 3
    said = cli("system", "info").out
    assert re.search("^event runs: +3 of at most 10$", said, re.MULTILINE)
    daemon.info.pending_events, daemon.info.event_runs_waiting = 7, 2
    said = cli("system", "info").out
    assert re.search("^event runs: +3 of at most 10, 2 waiting$", said, re.MULTILINE)
    assert re.search("^pending events: +7$", said, re.MULTILINE)
