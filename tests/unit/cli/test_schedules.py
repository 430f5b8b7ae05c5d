"""Schedules of subjects: `toban schedule` and `toban schedules`."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.cli.render.schedule_preview import read_at
from toban.v1 import schedule_pb2

from .conftest import Cli

DUE = ["2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"]
NOW = datetime(2026, 2, 1, 3, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def understanding(daemon: FakeDaemon) -> schedule_pb2.InterpretTimeResponse:
    meant = daemon.understood
    meant.understood, meant.recurring = "毎日 09:00 (Asia/Tokyo)", True
    for at in DUE:
        meant.due_times.add().FromJsonString(at)
    return meant


def created(daemon: FakeDaemon) -> schedule_pb2.CreateScheduleRequest:
    (request,) = (seen for seen in daemon.seen if isinstance(seen, schedule_pb2.CreateScheduleRequest))
    return request


def stored(daemon: FakeDaemon) -> schedule_pb2.Schedule:
    (schedule,) = daemon.schedules.values()
    return schedule


def test_it_says_what_it_understood(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("schedule", "毎日朝9時にリマインド", "--subject", "issue-42", "-a", "reminder")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        f"scheduled reminder for issue-42 ({stored(daemon).id})",
        "understood: 毎日 09:00 (Asia/Tokyo)",
        "due:        Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
        "due:        Fri 2099-01-02 09:00:00+09:00 Asia/Tokyo",
    ]
    request = created(daemon)
    assert (request.subject, request.rule.words) == ("issue-42", "毎日朝9時にリマインド")
    assert request.action == schedule_pb2.SCHEDULE_ACTION_REMINDER


def test_words_need_no_quotes(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("schedule", "in", "3", "days", "--subject", "a", "-a", "follow-up").code == 0
    assert created(daemon).rule.words == "in 3 days"
    assert created(daemon).action == schedule_pb2.SCHEDULE_ACTION_FOLLOW_UP


def test_a_workflow_with_parameters(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("check")
    result = cli(
        "schedule",
        "tomorrow",
        "--subject",
        "deploy-7",
        "-w",
        "check",
        "-p",
        "id=7",
        "-p",
        "b=x",
        "--timezone",
        "Europe/Berlin",
        "--dedupe-key",
        "k",
        "--max-occurrences",
        "1",
        "-o",
        "json",
    )
    assert result.code == 0
    request = created(daemon)
    assert (request.workflow, dict(request.params)) == ("check", {"id": "7", "b": "x"})
    assert request.action == schedule_pb2.SCHEDULE_ACTION_UNSPECIFIED
    assert (request.timezone, request.dedupe_key) == ("Europe/Berlin", "k")
    assert request.max_occurrences == 1
    data = result.data
    assert (data["id"], data["created"]) == (stored(daemon).id, True)
    assert data["due_times"] == DUE[:1]


def test_a_key_that_is_in_use(cli: Cli, daemon: FakeDaemon) -> None:
    given = ["schedule", "tomorrow", "--subject", "a", "-a", "reminder", "--dedupe-key", "k"]
    first = cli(*given, "-o", "name").out
    again = cli(*given)
    assert again.out.splitlines() == [
        f"already scheduled with this key: reminder for a ({first.strip()})",
        "understood: 毎日 09:00 (Asia/Tokyo)",
        "due:        Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
        "due:        Fri 2099-01-02 09:00:00+09:00 Asia/Tokyo",
    ]
    assert cli(*given, "-o", "json").data["created"] is False
    assert len(daemon.schedules) == 1


def test_a_repeated_request_gets_the_first_answer(cli: Cli, daemon: FakeDaemon) -> None:
    given = ["schedule", "30分後", "--subject", "s9", "-w", "listen", "--request-id", "rq1"]
    first, again = cli(*given), cli(*given)
    assert first.out.startswith("scheduled ")
    assert (again.code, again.out) == (0, first.out)
    assert cli(*given, "-o", "json").data["created"] is True
    assert len(daemon.schedules) == 1


def test_rules_instead_of_words(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("schedule", "--cron", "0 9 * * 5", "--subject", "a", "-a", "reminder").code == 0
    assert created(daemon).rule.cron == "0 9 * * 5"
    daemon.seen.clear()
    assert cli("schedule", "--every", "1h30m", "--subject", "a", "-a", "reminder").code == 0
    assert created(daemon).rule.every.ToTimedelta() == timedelta(hours=1.5)
    daemon.seen.clear()
    result = cli("schedule", "--at", "2099-01-01T09:00:00+09:00", "--subject", "a", "-a", "escalate")
    assert result.code == 0
    assert created(daemon).rule.at.ToJsonString() == DUE[0]


def test_when_it_is_due_is_the_daemons_word(cli: Cli, daemon: FakeDaemon) -> None:
    """It was stored: words that mean nothing any more by then make no difference."""
    result = cli("schedule", "in 1 second", "--subject", "a", "-a", "reminder", "-o", "json")
    assert result.data["due_times"] == DUE
    assert daemon.calls["InterpretTime"] == 0


def test_how_often_at_most(cli: Cli) -> None:
    for given in (["--subject", "a", "-a", "reminder"], ["--dry-run"]):
        lines = cli("schedule", "毎日朝9時", *given, "--max-occurrences", "2").out.splitlines()
        assert "at most:    2 times" in lines
    once = cli("schedule", "毎日朝9時", "--dry-run", "--max-occurrences", "1").out
    assert (once.count("due:"), "at most" in once) == (1, False)


def test_words_may_say_what_to_do(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.understood.action = schedule_pb2.SCHEDULE_ACTION_AUTO_CLOSE
    asked = cli("schedule", "3日後に自動クローズ", "--dry-run")
    assert "action:     auto_close" in asked.out.splitlines()
    assert cli("schedule", "3日後に自動クローズ", "--subject", "a").out.startswith("scheduled auto_close ")
    assert created(daemon).action == schedule_pb2.SCHEDULE_ACTION_UNSPECIFIED
    other = cli("schedule", "3日後に自動クローズ", "-a", "reminder", "--dry-run")
    assert (other.code, other.out) == (2, "")
    assert "the words mean auto_close, but --action is reminder" in other.err
    assert cli("schedule", "3日後に自動クローズ", "-a", "auto-close", "--dry-run").code == 0


def test_dry_run_stores_nothing(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("schedule", "毎日朝9時", "--dry-run")
    assert result.out.splitlines() == [
        "understood: 毎日 09:00 (Asia/Tokyo)",
        "due:        Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
        "due:        Fri 2099-01-02 09:00:00+09:00 Asia/Tokyo",
    ]
    assert result.err == "nothing was stored\n"
    assert cli("schedule", "毎日朝9時", "--dry-run", "-o", "name").out.splitlines() == DUE
    data = cli("schedule", "毎日朝9時", "--dry-run", "-o", "json").data
    assert (data["recurring"], data["due_times"]) == (True, DUE)
    assert daemon.schedules == {}


def test_dry_run_of_rules(cli: Cli, daemon: FakeDaemon) -> None:
    given = ["schedule", "--dry-run", "--timezone", "Asia/Tokyo", "-o", "json"]
    data = cli(*given, "--cron", "0 9 1 1 *").data
    assert data["understood"] == "every year on 1 January at 09:00 Asia/Tokyo"
    assert len(data["due_times"]) == 5
    assert all(at.endswith("-01-01T00:00:00Z") for at in data["due_times"])
    once = cli(*given, "--at", "2099-01-01T09:00").data
    assert (once["recurring"], once["due_times"]) == (False, DUE[:1])
    # As the daemon says it once it is stored.
    assert once["understood"] == "once at 2099-01-01 09:00+09:00 Asia/Tokyo"
    few = cli(*given, "--every", "2h", "--max-occurrences", "2").data
    assert (len(few["due_times"]), few["understood"]) == (2, "every 2h")
    # A daemon that does not tell its zone has that of the world.
    often = cli("schedule", "--dry-run", "--every", "2h")
    assert "understood: every 2h" in often.out
    assert often.out.count(" UTC") == 5
    assert daemon.calls["InterpretTime"] == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "cannot read the time: no time was given"),
        (["tomorrow", "--cron", "* * * * *"], "WORDS and --cron exclude each other"),
        (["--every", "soon"], '--every: expected a duration, found "soon"'),
        (["--at", "2h"], "--at: expected a time such as"),
        (["tomorrow"], "cannot create a schedule: --subject is missing"),
        (["tomorrow", "--subject", "a"], "a schedule for a: --action: it is missing"),
        (["--every", "2h", "--subject", "a"], "a schedule for a: --action or --workflow is missing"),
        (["tomorrow", "--subject", "a", "-a", "workflow"], "--workflow is missing"),
        (["tomorrow", "--subject", "a", "-a", "dance"], "unknown action 'dance'"),
        (["tomorrow", "--subject", "a", "-a", "reminder", "-p", "a=b"], "-p needs --workflow"),
        (["tomorrow", "--subject", "a", "-w", "x", "-p", "a"], "cannot read the parameters"),
        (["NONSENSE", "--subject", "a", "-a", "reminder"], 'cannot read the time "NONSENSE"'),
        (["NONSENSE", "--dry-run"], 'cannot read the time "NONSENSE"'),
        (["--cron", "x", "--dry-run"], "cannot read the time: "),
        (["--cron", "@reboot", "--dry-run"], "@reboot is only for workflows"),
        (["--every", "10ms", "--dry-run"], "must be at least one second"),
        (["tomorrow", "--dry-run", "-a", "bogus"], "unknown action 'bogus'"),
        (["tomorrow", "--dry-run", "-a", "workflow"], "--workflow is missing"),
        (["tomorrow", "--dry-run", "-p", "a=b"], "-p needs --workflow"),
        (["--at", "2026", "--subject", "a", "-a", "reminder"], "--at: expected a time such as"),
        (["--at", "9999-12-31T23:59:59Z", "--dry-run"], "--at: expected a time from 1970 to 9998"),
        (["--at", "2020-01-01T09:00", "--dry-run"], "UTC: that has passed: it is 2"),
        (["--every", "1h", "--dry-run", "--timezone", "Tokio"], 'unknown time zone "Tokio"'),
    ],
)
def test_what_cannot_be_scheduled(cli: Cli, daemon: FakeDaemon, given: list[str], said: str) -> None:
    result = cli("schedule", *given)
    assert (result.code, result.out) == (2, "")
    assert said in result.err.splitlines()[0]
    assert daemon.schedules == {}


def test_words_that_cannot_be_read_come_with_examples(cli: Cli) -> None:
    result = cli("schedule", "NONSENSE", "--dry-run")
    assert result.err == 'toban: cannot read the time "NONSENSE": NONSENSE is none (examples: tomorrow)\n'


def test_a_single_time() -> None:
    tokyo, berlin = "Asia/Tokyo", "Europe/Berlin"
    assert read_at("2026-02-01T09:00+09:00", berlin, NOW).isoformat() == "2026-02-01T09:00:00+09:00"
    assert read_at("2026-02-01 09:00", berlin, NOW).isoformat() == "2026-02-01T09:00:00+01:00"
    assert read_at("18:00", berlin, NOW).isoformat() == "2026-02-01T18:00:00+01:00"
    assert read_at("00:30", tokyo, NOW + timedelta(hours=13)).isoformat().startswith("2026-02-02")
    assert read_at("2026-02-01T09:00", "", NOW).tzinfo is not None


def test_short_times_of_today() -> None:
    assert read_at("9:30", "Asia/Tokyo", NOW).isoformat() == "2026-02-01T09:30:00+09:00"
    assert read_at("23:00:05", "Asia/Tokyo", NOW).isoformat() == "2026-02-01T23:00:05+09:00"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026", "expected a time such as"),
        ("2026-12", "expected a time such as"),
        ("23", "expected a time such as"),
        ("23:5", "expected a time such as"),
        ("T18:00", "expected a time such as"),
        ("18:00+09:00", "expected a time such as"),
        ("20261224T180000", "expected a time such as"),
        ("2026-W52-4", "expected a time such as"),
        ("25:00", "expected a time such as"),
        ("2026-02-30T09:00", "expected a time such as"),
        ("2026-12-24", "a date needs a time: write 2026-12-24T09:00"),
        ("9999-12-31T23:59:59+00:00", "expected a time from 1970 to 9998"),
        ("9998-12-31T23:59:59-09:00", "expected a time from 1970 to 9998"),
        ("0001-01-01T00:00", "expected a time from 1970 to 9998"),
        ("2027-03-28T02:30", "there is no 02:30 on 2027-03-28 in Europe/Berlin"),
    ],
)
def test_what_is_no_single_time(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_at(text, "Europe/Berlin", NOW)


def test_a_time_that_the_clocks_here_pass_over(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "win32":
        pytest.skip("the zone of the process cannot be set there")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    with pytest.raises(ValueError, match="there is no 02:30 on 2027-03-28 here"):
        read_at("2027-03-28T02:30", "", NOW)
    assert read_at("2027-10-31T02:30", "", NOW).isoformat() == "2027-10-31T02:30:00+02:00"


def test_a_zone_that_this_machine_does_not_know_is_not_guessed() -> None:
    with pytest.raises(ValueError, match='unknown time zone "Asia/Tokio"'):
        read_at("2026-02-01T09:00", "Asia/Tokio", NOW)
    assert read_at("2026-02-01T09:00Z", "Asia/Tokio", NOW).utcoffset() == timedelta(0)


def test_a_time_at_the_end_of_the_calendar_spoils_no_list(cli: Cli, daemon: FakeDaemon) -> None:
    cli("schedule", "毎日朝9時", "--subject", "a", "-a", "reminder")
    last = stored(daemon)
    last.next_due.FromJsonString("9999-12-31T23:59:59Z")
    assert "9999-12-31 23:59:59" in cli("schedules", "list").out
    assert "9999-12-31 23:59:59" in cli("schedules", "show", last.id).out


@pytest.mark.parametrize("kind", ["workflow", "job"])
def test_deleting_tells_of_schedules_that_are_left(cli: Cli, daemon: FakeDaemon, kind: str) -> None:
    if kind == "workflow":
        daemon.add_workflow("check")
    else:
        daemon.add_job("check")
    for subject in ("a", "b"):
        cli("schedule", "毎日朝9時", "--subject", subject, "-w", "check")
    result = cli(f"{kind}s", "delete", "check")
    assert result.code == 0
    assert "2 active schedules still name check" in result.err
    assert "toban schedules list --workflow check" in result.err


def test_pruning_tells_of_schedules_that_are_left(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.add_workflow("check", base_dir=str(tmp_path))
    cli("schedule", "毎日朝9時", "--subject", "a", "-w", "check")
    (tmp_path / "other.yaml").write_text("name: other\ndescription: d\nsteps: {a: {run: echo}}\n")
    assert "still" not in cli("apply", str(tmp_path), "--prune", "--dry-run").err
    result = cli("apply", str(tmp_path), "--prune")
    assert result.code == 0
    assert "1 active schedule still names check" in result.err


def test_deleting_says_nothing_of_schedules_where_there_are_none(cli: Cli, daemon: FakeDaemon) -> None:
    for name in ("check", "other"):
        daemon.add_workflow(name)
    assert cli("workflows", "delete", "check").err == ""
    # Whether any are left cannot be known: it is deleted all the same.
    daemon.fail["ListSchedules"] = (grpc.StatusCode.UNIMPLEMENTED, "there is no such call", ())
    result = cli("workflows", "delete", "other")
    assert (result.code, result.err) == (0, "")


def test_list(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("schedules", "list").err == "no active schedules\n"
    narrow = cli("schedules", "list", "--subject", "a", "-w", "check")
    assert narrow.err == "no active schedules of a that start check\n"
    assert cli("schedules", "list", "--subject", "a", "--all").err == "no schedules of a\n"
    cli("schedule", "毎日朝9時", "--subject", "issue-42", "-a", "auto_close")
    first = stored(daemon)
    first.occurrences, first.max_occurrences = 2, 5
    cli("schedule", "毎日朝9時", "--subject", "other", "-w", "check", "-a", "reminder")
    header, row, _ = (re.split("  +", line) for line in cli("schedules", "list").out.splitlines())
    assert header == [
        "ID",
        "SUBJECT",
        "ACTION",
        "WORKFLOW",
        "STATE",
        "NEXT DUE (JST)",
        "OCCURRENCES",
        "REQUEST",
    ]
    assert row == [
        first.id,
        "issue-42",
        "auto_close",
        "-",
        "active",
        "2099-01-01 09:00:00",
        "2 of 5",
        "毎日朝9時",
    ]
    assert len(cli("schedules", "list", "--workflow", "check", "-o", "json").data) == 1
    named = cli("schedules", "list", "--limit", "1", "-o", "name")
    assert named.out == f"{first.id}\n"
    assert named.err.startswith("more available")


def test_show(cli: Cli, daemon: FakeDaemon) -> None:
    cli("schedule", "毎日朝9時", "--subject", "issue-42", "-w", "check", "-p", "id=7")
    found = stored(daemon)
    lines = cli("schedules", "show", found.id).out.splitlines()
    for told in (
        f"schedule:    {found.id}",
        "subject:     issue-42",
        "workflow:    check",
        'parameters:  {"id": "7"}',
        "request:     毎日朝9時",
        "understood:  毎日 09:00 (Asia/Tokyo)",
        "state:       active",
        "next due:    Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
        "occurrences: 0",
    ):
        assert told in lines
    assert cli("schedules", "show", found.id, "-o", "json").data["subject"] == "issue-42"
    missing = cli("schedules", "show", "nothing")
    assert missing.code == 5
    assert missing.err.splitlines()[1] == ("hint: `toban schedules list --all` lists all schedules")


def test_cancel(cli: Cli, daemon: FakeDaemon) -> None:
    for subject in ("a", "a", "b", "c"):
        cli("schedule", "tomorrow", "--subject", subject, "-a", "reminder")
    first, second, third, last = daemon.schedules
    daemon.schedules[last].state = schedule_pb2.SCHEDULE_STATE_ENDED
    result = cli("schedules", "cancel", third, last)
    assert (result.code, result.out) == (0, f"cancelled {third}\n{last} has already ended\n")
    assert "cancelled:   20" in cli("schedules", "show", third).out
    assert "next due" not in cli("schedules", "show", third).out
    assert cli("schedules", "cancel", "--subject", "a").out == "cancelled 2 schedules of a\n"
    again = cli("schedules", "cancel", "--subject", "a", "-o", "json")
    assert again.data == {"subject": "a", "cancelled": 0}
    assert cli("schedules", "cancel", first, "-o", "name").out == f"{first}\n"
    (told,) = cli("schedules", "cancel", second, "-o", "json").data
    assert told["state"] == "cancelled"
    for wrong in ([], [first, "--subject", "a"]):
        assert cli("schedules", "cancel", *wrong).code == 2
    missing = cli("schedules", "cancel", "nothing")
    assert missing.code == 5
    assert "cannot cancel schedule nothing: " in missing.err
