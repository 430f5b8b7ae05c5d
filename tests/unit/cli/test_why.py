"""When a workflow is due, why it did or did not run, and holding all schedules back."""

from __future__ import annotations

import re

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import run_pb2, workflow_pb2

from .conftest import Cli

ZONE = "Europe/Berlin"


def due(local: str, **more: object) -> workflow_pb2.DueTime:
    made = workflow_pb2.DueTime(local=local, timezone=ZONE)
    made.due_at.FromJsonString(local.replace(" ", "T"))
    made.start_at.CopyFrom(made.due_at)
    made.MergeFrom(workflow_pb2.DueTime(**more))  # type: ignore[arg-type]
    return made


def fire(due_at: str, outcome: str, **more: object) -> workflow_pb2.Fire:
    made = workflow_pb2.Fire(
        schedule_id="nightly/0",
        workflow="nightly",
        outcome=workflow_pb2.FireOutcome.Value(f"FIRE_OUTCOME_{outcome}"),
    )
    made.due_at.FromJsonString(due_at)
    made.at.FromJsonString(due_at)
    made.at.seconds += 2
    made.MergeFrom(workflow_pb2.Fire(**more))  # type: ignore[arg-type]
    return made


@pytest.fixture(autouse=True)
def nightly(daemon: FakeDaemon) -> workflow_pb2.Workflow:
    return daemon.add_workflow("nightly")


def test_the_next_times_on_the_clocks_of_the_schedule(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.due_times += [due("2026-02-01 03:00:00+01:00"), due("2026-02-02 03:00:00+01:00")]
    result = cli("workflows", "next", "nightly")
    assert (result.code, result.err) == (0, "Title of nightly (nightly)\n")
    assert result.out.splitlines() == [
        "DAY  DUE                        ZONE",
        "Sun  2026-02-01 03:00:00+01:00  Europe/Berlin",
        "Mon  2026-02-02 03:00:00+01:00  Europe/Berlin",
    ]
    request = daemon.seen[0]
    assert isinstance(request, workflow_pb2.PreviewScheduleRequest)
    assert (request.count, request.HasField("from_time")) == (10, False)


def test_that_nothing_starts_at_the_next_times_is_told(
    cli: Cli, daemon: FakeDaemon, nightly: workflow_pb2.Workflow
) -> None:
    daemon.due_times.append(due("2026-02-01 03:00:00+01:00"))
    nightly.enabled = False
    daemon.info.draining = True
    result = cli("workflows", "next", "nightly")
    assert (result.code, len(result.out.splitlines())) == (0, 2)
    assert result.err.splitlines() == [
        "Title of nightly (nightly)",
        "nightly is disabled: no run starts until `toban workflows enable nightly`",
        "the daemon is draining: no run starts until `toban system resume`",
    ]
    # Programs ask for what they want to know.
    assert cli("workflows", "next", "nightly", "-o", "json").err == ""


def test_the_next_times_of_a_job(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.due_times.append(due("2026-02-01 03:00:00+01:00"))
    daemon.add_job("tidy").enabled = False
    result = cli("workflows", "next", "tidy")
    assert (result.code, len(result.out.splitlines())) == (0, 2)
    assert result.err == "Title of tidy (tidy)\ntidy is disabled: no run starts until `toban jobs enable tidy`\n"


def test_clock_changes_blackouts_and_jitter_are_marked(cli: Cli, daemon: FakeDaemon) -> None:
    shifted = due("2026-03-29 03:00:00+02:00", change=workflow_pb2.CLOCK_CHANGE_SHIFTED)
    repeated = due(
        "2026-10-25 02:30:00+01:00",
        change=workflow_pb2.CLOCK_CHANGE_REPEATED,
        schedule_index=1,
        blackout="blackout until 2026-10-25T04:00:00+01:00",
    )
    repeated.start_at.seconds += 90
    daemon.due_times += [shifted, repeated]
    header, first, second = cli("workflows", "next", "nightly").out.splitlines()
    assert header.split() == ["DAY", "DUE", "ZONE", "SCHEDULE", "STARTS", "NOTE"]
    assert first.endswith("  0         on time       shifted: the clocks skip its time")
    assert second.endswith(
        "  1         1m 30s later  repeated: the clocks show this time twice; "
        "not started: blackout until 2026-10-25T04:00:00+01:00"
    )


def test_how_many_and_from_when(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.due_times += [due(f"2026-02-0{day} 03:00:00+01:00") for day in range(1, 6)]
    result = cli("workflows", "next", "nightly", "-n", "2", "--from", "2026-02-01T09:00", "-o", "name")
    assert result.out.splitlines() == ["2026-02-01 03:00:00+01:00", "2026-02-02 03:00:00+01:00"]
    (request,) = daemon.seen
    assert isinstance(request, workflow_pb2.PreviewScheduleRequest)
    assert request.from_time.ToJsonString() == "2026-02-01T00:00:00Z"
    (first, *_) = cli("workflows", "next", "nightly", "-o", "json").data
    assert first["due_at"] == "2026-02-01T02:00:00Z"
    assert (first["change"], first["blackout"]) == (None, "")


def test_a_long_jitter_is_readable(cli: Cli, daemon: FakeDaemon) -> None:
    late = due("2026-02-01 03:00:00+01:00")
    late.start_at.seconds += 416_572
    daemon.due_times.append(late)
    assert cli("workflows", "next", "nightly").out.splitlines()[1].endswith("  4d 19h later")


def test_what_has_no_times_says_why(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.explanation.sentences.append("It is due at the next boot of the machine.")
    result = cli("workflows", "next", "nightly")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        "nightly has no known due time",
        "It is due at the next boot of the machine.",
    ]
    listed = cli("workflows", "next", "nightly", "-o", "json")
    assert (listed.data, listed.err) == ([], "")


@pytest.mark.parametrize("verb", [["workflows", "next"], ["why"], ["why", "--ledger"]])
def test_an_unknown_workflow(cli: Cli, verb: list[str]) -> None:
    result = cli(*verb, "nightlv")
    assert (result.code, result.out) == (5, "")
    assert "did you mean nightly?" in result.err


def test_why_in_sentences(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.explanation.sentences.extend(["It was due, and was skipped: disabled.", "It is\x1b[2J due."])
    daemon.explanation.fires.append(
        fire("2026-02-01T02:00:00Z", "SKIPPED", reason=workflow_pb2.NOT_STARTED_REASON_DISABLED)
    )
    result = cli("why", "nightly")
    assert (result.code, result.err) == (0, "")
    assert result.out == "Title of nightly (nightly)\nIt was due, and was skipped: disabled.\nIt is\\x1b[2J due.\n"
    data = cli("why", "nightly", "-o", "json").data
    assert data["fires"][0]["reason"] == "disabled"
    assert data["sentences"][0].startswith("It was due")
    assert not any(
        isinstance(seen, workflow_pb2.ExplainScheduleRequest) and seen.HasField("at") for seen in daemon.seen
    )


def test_why_at_a_time(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("why", "nightly", "--at", "2026-02-01T03:00").code == 0
    request, _ = daemon.seen
    assert isinstance(request, workflow_pb2.ExplainScheduleRequest)
    assert request.at.ToJsonString() == "2026-01-31T18:00:00Z"
    wrong = cli("why", "nightly", "--at", "noon")
    assert wrong.code == 2
    assert "--at: expected a duration such as 5m" in wrong.err
    both = cli("why", "nightly", "--at", "03:00", "--ledger")
    assert both.code == 2
    assert "exclude each other" in both.err


def test_the_ledger(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.fires += [
        fire("2026-02-03T00:15:30Z", "FIRED", run_id="run-3"),
        fire(
            "2026-02-02T00:15:30Z",
            "SKIPPED",
            reason=workflow_pb2.NOT_STARTED_REASON_OVERLAP,
            detail="run run-1 is active",
        ),
        fire(
            "2026-02-01T00:15:30Z",
            "MISSED",
            reason=workflow_pb2.NOT_STARTED_REASON_OTHER,
            detail="nobody was there",
            more=4,
        ),
        workflow_pb2.Fire(workflow="other"),
    ]
    rows = [re.split("  +", line) for line in cli("why", "nightly", "--ledger").out.splitlines()]
    missed = "nobody was there, and 4 earlier due times"
    assert rows == [
        ["DUE (JST)", "OUTCOME", "LATE", "REASON", "SCHEDULE", "RUN"],
        ["2026-02-03 09:15:30", "fired", "2s", "nightly/0", "run-3"],
        ["2026-02-02 09:15:30", "skipped", "-", "overlap: run run-1 is active", "nightly/0", "-"],
        ["2026-02-01 09:15:30", "missed", "-", missed, "nightly/0", "-"],
    ]
    limited = cli("why", "nightly", "--ledger", "--limit", "1", "-o", "name")
    assert limited.out == "run-3\n"
    assert limited.err.startswith("more available")
    (first, *_) = cli("why", "nightly", "--ledger", "-o", "json").data
    assert first["outcome"] == "fired"


def test_the_ledger_names_its_runs(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.fires += [
        fire("2026-02-03T00:15:30Z", "FIRED", run_id=run_id) for run_id in (daemon.add_run("nightly").run.id, "deleted")
    ]
    _, first, second = cli("why", "nightly", "--ledger").out.splitlines()
    assert (first.split()[-1], second.split()[-1]) == ("nightly#1", "deleted")
    assert daemon.calls["ListRuns"] == 1


def test_the_ledger_of_a_subject_tells_how_late_it_was(cli: Cli, daemon: FakeDaemon) -> None:
    """A reminder is an event: its line has no run."""
    daemon.fires += [
        fire("2026-02-03T00:15:30Z", "FIRED"),
        fire("2026-02-02T00:15:30Z", "CAUGHT_UP"),
    ]
    rows = [re.split("  +", line) for line in cli("why", "nightly", "--ledger").out.splitlines()]
    late = rows[0].index("LATE")
    assert [row[late] for row in rows[1:]] == ["2s", "2s"]


def test_an_empty_ledger(cli: Cli) -> None:
    result = cli("why", "nightly", "--ledger")
    assert (result.out, result.err) == ("", "nightly has not been due yet\n")


def test_show_tells_the_schedules(cli: Cli, nightly: workflow_pb2.Workflow) -> None:
    assert "next due" not in cli("workflows", "show", "nightly").out
    nightly.schedules.extend(["every day at 03:00 Asia/Tokyo", "every 2h"])
    assert "next due: none" in cli("workflows", "show", "nightly").out
    nightly.next_due.FromJsonString("2026-02-01T18:00:00Z")
    lines = cli("workflows", "show", "nightly").out.splitlines()
    told = [re.split(": +", line, maxsplit=1) for line in lines]
    at = told.index(["schedule", "every day at 03:00 Asia/Tokyo"])
    assert told[at + 1 : at + 3] == [["schedule", "every 2h"], ["next due", "2026-02-02 03:00:00 JST"]]
    nightly.enabled = False
    assert "03:00:00 JST; disabled, so not started" in cli("workflows", "show", "nightly").out


def test_runs_that_a_schedule_started(cli: Cli, daemon: FakeDaemon) -> None:
    run = daemon.add_run("nightly").run
    assert "DUE" not in cli("runs", "list").out
    run.triggered_by = run_pb2.TRIGGER_SCHEDULE
    run.schedule_id, run.caller = "nightly/0", "schedule"
    run.scheduled_at.FromJsonString("2026-02-01T00:15:30Z")
    run.missed.add().FromJsonString("2026-01-31T00:15:30Z")
    lines = cli("runs", "show", "nightly").out.splitlines()
    assert "started by: schedule" in lines
    assert "schedule:   nightly/0, due 2026-02-01 09:15:30 JST" in lines
    assert "missed:     2026-01-31 09:15:30 JST" in lines
    for day in range(10, 20):
        run.missed.add().FromJsonString(f"2026-01-{day}T00:15:30Z")
    assert "11 due times, from 2026-01-31 09:15:30 JST to" in cli("runs", "show", "nightly").out
    header, row = cli("runs", "list").out.splitlines()
    assert header.split()[-3:] == ["DUE", "(JST)", "ID"]
    assert "2026-02-01 09:15:30" in row


def test_draining(cli: Cli, daemon: FakeDaemon) -> None:
    assert "schedules" not in cli("system", "info").out
    daemon.info.schedules = 3
    daemon.info.next_due.FromJsonString("2026-02-01T00:15:30Z")
    said = cli("system", "info").out.splitlines()
    assert any(line.endswith("3, next due 2026-02-01 09:15:30 JST") for line in said)
    drained = cli("system", "drain")
    assert (drained.code, drained.out) == (0, "draining: schedules and events start no runs\n")
    assert "toban system resume" in drained.err
    assert "3, draining: they start no runs" in cli("system", "info").out
    assert cli("system", "drain").out == "already draining: schedules and events start no runs\n"
    assert cli("system", "resume", "-o", "json").data == {"draining": False, "changed": True}
    assert cli("system", "resume").out == "was not draining: schedules and events start runs\n"
    assert cli("system", "drain", "-o", "name").out == "draining\n"


def test_show_tells_the_schedules_and_events_of_a_job(cli: Cli, daemon: FakeDaemon) -> None:
    job = daemon.add_job("upload")
    said = cli("jobs", "show", "upload").out
    assert "next due" not in said
    assert "started by" not in said
    job.schedules.append("every 2h")
    job.next_due.FromJsonString("2026-02-01T18:00:00Z")
    job.event_types.extend(["FILE_CHANGED", "ORDER_PAID"])
    lines = [re.split(": +", one) for one in cli("jobs", "show", "upload").out.splitlines()]
    at = lines.index(["schedule", "every 2h"])
    assert lines[at + 1 : at + 3] == [
        ["next due", "2026-02-02 03:00:00 JST"],
        ["started by", "FILE_CHANGED, ORDER_PAID"],
    ]
    job.enabled = False
    assert "ORDER_PAID; disabled, so not started" in cli("jobs", "show", "upload").out
