"""Schedules of subjects: `toban schedule` and `toban schedules`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from toban.cli.due_times import read_at
from toban.v1 import schedule_pb2

from ..sdk.fake_daemon import FakeDaemon  # noqa: TID252
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
    (request,) = (
        seen for seen in daemon.seen if isinstance(seen, schedule_pb2.CreateScheduleRequest)
    )
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
    assert cli("schedule", "in", "3", "days", "-s", "a", "-a", "follow-up").code == 0
    assert created(daemon).rule.words == "in 3 days"
    assert created(daemon).action == schedule_pb2.SCHEDULE_ACTION_FOLLOW_UP


def test_a_workflow_with_parameters(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("check")
    result = cli(
        "schedule", "tomorrow", "-s", "deploy-7", "-w", "check", "-p", "id=7", "-p", "b=x",
        "--timezone", "Europe/Berlin", "--dedupe-key", "k", "--max-occurrences", "1", "-o", "json",
    )  # fmt: skip
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
    given = ["schedule", "tomorrow", "-s", "a", "-a", "reminder", "--dedupe-key", "k"]
    first = cli(*given, "-o", "name").out
    again = cli(*given)
    assert again.out.splitlines() == [
        f"this key is in use by reminder for a ({first.strip()})",
        "understood: 毎日 09:00 (Asia/Tokyo)",
        "due:        Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
    ]
    assert cli(*given, "-o", "json").data["created"] is False
    assert len(daemon.schedules) == 1


def test_rules_instead_of_words(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("schedule", "--cron", "0 9 * * 5", "-s", "a", "-a", "reminder")
    # The first time is the daemon's, which is no Friday here.
    assert [line.split()[1] for line in result.out.splitlines()[2:]] == [
        "Thu",
        *["Fri"] * 4,
    ]
    assert created(daemon).rule.cron == "0 9 * * 5"
    daemon.seen.clear()
    result = cli("schedule", "--every", "1h30m", "-s", "a", "-a", "reminder")
    assert [line[11:] for line in result.out.splitlines()[2:4]] == [
        " Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
        " Thu 2099-01-01 10:30:00+09:00 Asia/Tokyo",
    ]
    assert created(daemon).rule.every.ToTimedelta() == timedelta(hours=1.5)
    daemon.seen.clear()
    result = cli("schedule", "--at", "2099-01-01T09:00:00+09:00", "-s", "a", "-a", "escalate")
    assert [line[:4] for line in result.out.splitlines()[2:]] == ["due:"]
    assert created(daemon).rule.at.ToJsonString() == DUE[0]


def test_from_now_on_means_the_same_for_both_questions(cli: Cli, daemon: FakeDaemon) -> None:
    def later() -> None:
        for at in daemon.understood.due_times:
            at.seconds += 1

    daemon.on_call["InterpretTime"] = later
    result = cli("schedule", "every day", "-s", "a", "-a", "reminder", "-o", "json")
    assert result.data["due_times"] == DUE


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
        (["tomorrow"], "cannot schedule anything: --subject says what it is about"),
        (["tomorrow", "-s", "a"], "anything for a: neither --action nor --workflow is there"),
        (["tomorrow", "-s", "a", "-a", "workflow"], "--workflow is missing"),
        (["tomorrow", "-s", "a", "-a", "dance"], "'dance' is no action"),
        (["tomorrow", "-s", "a", "-a", "reminder", "-p", "a=b"], "-p is for the workflow"),
        (["tomorrow", "-s", "a", "-w", "x", "-p", "a"], "cannot read the parameters"),
        (["NONSENSE", "-s", "a", "-a", "reminder"], 'cannot read the time "NONSENSE"'),
        (["NONSENSE", "--dry-run"], 'cannot read the time "NONSENSE"'),
        (["--cron", "x", "--dry-run"], "cannot read the time: "),
        (["--cron", "@reboot", "--dry-run"], "@reboot is for workflows"),
        (["--every", "10ms", "--dry-run"], "expected one second at least"),
        (["--at", "2020-01-01T09:00", "--dry-run"], "it is never due, or not any more"),
        (["--every", "1h", "--dry-run", "--timezone", "Tokio"], 'unknown time zone "Tokio"'),
    ],
)
def test_what_cannot_be_scheduled(
    cli: Cli, daemon: FakeDaemon, given: list[str], said: str
) -> None:
    result = cli("schedule", *given)
    assert (result.code, result.out) == (2, "")
    assert said in result.err.splitlines()[0]
    assert daemon.schedules == {}


def test_words_that_cannot_be_read_come_with_examples(cli: Cli) -> None:
    result = cli("schedule", "NONSENSE", "--dry-run")
    assert result.err.splitlines() == [
        'toban: cannot read the time "NONSENSE": NONSENSE is none',
        "hint: what can be read: tomorrow",
    ]


def test_a_single_time() -> None:
    tokyo, berlin = "Asia/Tokyo", "Europe/Berlin"
    assert read_at("2026-02-01T09:00+09:00", berlin, NOW).isoformat() == "2026-02-01T09:00:00+09:00"
    assert read_at("2026-02-01 09:00", berlin, NOW).isoformat() == "2026-02-01T09:00:00+01:00"
    assert read_at("18:00", berlin, NOW).isoformat() == "2026-02-01T18:00:00+01:00"
    assert read_at("00:30", tokyo, NOW + timedelta(hours=13)).isoformat().startswith("2026-02-02")
    assert read_at("2026-02-01T09:00", "", NOW).tzinfo is not None


def test_list(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("schedules", "list").err == "no active schedules\n"
    assert cli("schedules", "list", "-s", "a", "--all").err == "no schedules of a\n"
    cli("schedule", "毎日朝9時", "-s", "issue-42", "-a", "auto_close")
    first = stored(daemon)
    first.occurrences, first.max_occurrences = 2, 5
    cli("schedule", "毎日朝9時", "-s", "other", "-w", "check", "-a", "reminder")
    header, row, _ = (re.split("  +", line) for line in cli("schedules", "list").out.splitlines())
    assert header == [
        "ID", "SUBJECT", "ACTION", "WORKFLOW", "STATE", "NEXT DUE", "DUE SO FAR", "REQUEST",
    ]  # fmt: skip
    assert row == [
        first.id, "issue-42", "auto_close", "-", "active", "2099-01-01 09:00:00", "2 of 5",
        "毎日朝9時",
    ]  # fmt: skip
    assert len(cli("schedules", "list", "--workflow", "check", "-o", "json").data) == 1
    named = cli("schedules", "list", "--limit", "1", "-o", "name")
    assert named.out == f"{first.id}\n"
    assert named.err.startswith("there are more")


def test_show(cli: Cli, daemon: FakeDaemon) -> None:
    cli("schedule", "毎日朝9時", "-s", "issue-42", "-w", "check", "-p", "id=7")
    found = stored(daemon)
    lines = cli("schedules", "show", found.id).out.splitlines()
    for told in (
        f"schedule:   {found.id}",
        "subject:    issue-42",
        "workflow:   check",
        'parameters: {"id": "7"}',
        "request:    毎日朝9時",
        "understood: 毎日 09:00 (Asia/Tokyo)",
        "state:      active",
        "next due:   Thu 2099-01-01 09:00:00+09:00 Asia/Tokyo",
        "due so far: 0",
    ):
        assert told in lines
    assert cli("schedules", "show", found.id, "-o", "json").data["subject"] == "issue-42"
    missing = cli("schedules", "show", "nothing")
    assert missing.code == 5
    assert missing.err.splitlines()[1] == (
        "hint: `toban schedules list --all` shows those that are kept"
    )


def test_cancel(cli: Cli, daemon: FakeDaemon) -> None:
    for subject in ("a", "a", "b", "c"):
        cli("schedule", "tomorrow", "-s", subject, "-a", "reminder")
    first, second, third, last = daemon.schedules
    daemon.schedules[last].state = schedule_pb2.SCHEDULE_STATE_ENDED
    result = cli("schedules", "cancel", third, last)
    assert (result.code, result.out) == (0, f"cancelled {third}\n{last} has ended already\n")
    assert "cancelled:  20" in cli("schedules", "show", third).out
    assert "next due" not in cli("schedules", "show", third).out
    assert cli("schedules", "cancel", "--subject", "a").out == "cancelled 2 schedules of a\n"
    again = cli("schedules", "cancel", "--subject", "a", "-o", "json")
    assert again.data == {"subject": "a", "cancelled": 0}
    assert cli("schedules", "cancel", first, "-o", "name").out == f"{first}\n"
    (told,) = cli("schedules", "cancel", second, "-o", "json").data
    assert told["state"] == "SCHEDULE_STATE_CANCELLED"
    for wrong in ([], [first, "--subject", "a"]):
        assert cli("schedules", "cancel", *wrong).code == 2
    missing = cli("schedules", "cancel", "nothing")
    assert missing.code == 5
    assert "cannot cancel schedule nothing: " in missing.err
