"""Crontabs: how their lines are read, and the workflows that are made of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from toban.definition import Scope, Step, parse, render
from toban.importers.crontab import read_crontab, split_command
from toban.importers.crontab_drafts import command_name, import_crontab, looks_like_system
from toban.importers.import_model import Imported, WorkflowDraft
from toban.importers.workflow_writer import WrittenWorkflow, written

NOW = datetime(2026, 2, 1, tzinfo=UTC)
HOMES = {"": "/home/me", "alice": "/home/alice", "root": "/root"}


def imported(text: str, *, system: bool = False, zone: str = "UTC", owner: str = "") -> Imported:
    return import_crontab(
        text,
        file="tab",
        system=system,
        zone=zone,
        home=lambda user: HOMES.get(user, ""),
        owner=owner,
    )


def only(text: str, **options: Any) -> WorkflowDraft:
    found = imported(text, **options)
    assert found.refused == ()
    (draft,) = found.drafts
    return draft


def step_of(draft: WorkflowDraft) -> Mapping[str, Any]:
    (step,) = draft.document["steps"]
    assert isinstance(step, dict)
    return step


def made(draft: WorkflowDraft) -> WrittenWorkflow:
    return written(draft, after=NOW, count=10)


def stored(draft: WorkflowDraft) -> Step:
    """The step as the format reads it back."""
    workflow = parse(made(draft).text).documents[0].workflow
    assert workflow is not None
    (step,) = workflow.steps.values()
    return step


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("date", "date", ""),
        (r"date +\%F", "date +%F", ""),
        ("mail x%hello%world", "mail x", "hello\nworld\n"),
        (r"mail x%100\% sure", "mail x", "100% sure\n"),
        ("mail x%", "mail x", ""),
        ("mail x%a%", "mail x", "a\n"),
        (r"printf 'a\tb'", r"printf 'a\tb'", ""),
        (r"echo \\%in", r"echo \\", "in\n"),
        ("echo end\\", "echo end\\", ""),
    ],
)
def test_percent_signs(text: str, command: str, stdin: str) -> None:
    assert split_command(text) == (command, stdin)


def test_lines_with_their_comments_and_the_settings_above_them() -> None:
    text = "# about the file\n\nA = \"x y\"\n# first\n#second\n  5 4 * * *\tone  two\n'B'=\n-@Daily three\r\n"
    (one, three), refused = read_crontab(text, file="tab", system=False)
    assert refused == []
    assert (one.number, one.when, one.command) == (6, "5 4 * * *", "one  two")
    assert (one.comments, one.settings) == (("first", "second"), {"A": "x y"})
    assert (three.when, three.command, three.quiet) == ("0 0 * * *", "three", True)
    assert three.settings == {"A": "x y", "B": ""}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "expected a time and a command"),
        ("* * * * *", "expected a time and a command"),
        ("@fortnightly x", "@fortnightly is not known"),
        ("* * * * * %in", "there is no command"),
        ("0~30 * * * * x", 'minute: crontab(5) has no "0~30"'),
        ("0 0 L * * x", 'day of month: "L" is not a value'),
        ("61 * * * * x", 'minute: "61" is not a value'),
        (f"{'9' * 5000} * * * * x", "is not a value from 0 to 59"),
        (f"*/{'9' * 5000} * * * * x", "minute: crontab(5) has no"),
        ("5/10 * * * * x", "a step needs a range"),
        ("0 5-3 * * * x", "a range cannot go backwards"),
        ("0 0 31 2 * x", "is never due"),
        ("CRON_TZ=Mars/Base\n0 0 * * * x", "CRON_TZ: unknown time zone"),
        ("SHELL=fish\n0 0 * * * x", "SHELL: expected an absolute path"),
        ("RANDOM_DELAY=x\n0 0 * * * x", "RANDOM_DELAY: expected minutes"),
        ("a-b=1\n0 0 * * * x", 'the variable "a-b"'),
        ("TOBAN_X=1\n0 0 * * * x", 'the variable "TOBAN_X"'),
    ],
)
def test_what_cannot_be_taken_over_is_told_with_its_line(line: str, reason: str) -> None:
    found = imported(f"1 2 * * * good\n{line}\n")
    (refused,) = found.refused
    assert refused.where == f"tab:{2 + line.count(chr(10))}"
    assert reason in refused.reason
    assert [draft.name for draft in found.drafts] == ["good"]


def test_a_line_becomes_a_workflow_that_means_the_same() -> None:
    draft = only("# Keep it safe\n30 2 * * * /opt/backup.sh --full >/dev/null 2>&1\n")
    assert draft.document == {
        "name": "backup",
        "description": "Keep it safe",
        "schedule": {"cron": "30 2 * * *", "misfire": "skip"},
        "overlap": "allow",
        "steps": [
            {
                "name": "backup",
                "run": "/opt/backup.sh --full >/dev/null 2>&1",
                "errexit": False,
                "workspace": "/home/me",
            }
        ],
    }
    result = made(draft)
    assert result.text.startswith("# Imported from tab:2\n")
    assert result.same
    assert len(result.ours) == 10
    assert parse(result.text).problems == ()


def test_a_system_crontab_names_users() -> None:
    step = step_of(only("0 3 * * * alice tidy all\n", system=True))
    assert (step["user"], step["run"], step["workspace"]) == ("alice", "tidy all", "/home/alice")
    unknown = only("0 3 * * * nobody-here tidy\n", system=True)
    assert "workspace" not in step_of(unknown)
    assert any("set workspace" in comment for comment in unknown.comments)
    (refused,) = imported("0 3 * * * tidy\n", system=True).refused
    assert "expected a user" in refused.reason


def test_the_owner_of_a_users_crontab() -> None:
    step = step_of(only("0 3 * * * tidy\n", owner="alice"))
    assert (step["user"], step["workspace"]) == ("alice", "/home/alice")
    assert any("--user" in note for note in only("0 3 * * * tidy\n").notes)


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("0 3 * * * root tidy\n1 1 * * * alice x\n", True),
        ("0 3 * * * root tidy\n1 1 * * * x alice\n", False),
        ("0 3 * * * alice\n", False),
        ("# nothing\n", False),
    ],
)
def test_whether_it_looks_like_a_system_crontab(text: str, system: bool) -> None:
    assert looks_like_system(text, lambda name: name in HOMES) is system


def test_settings_become_environment_and_what_cron_reads_itself_does_not() -> None:
    draft = only(
        "PATH=/usr/bin:/bin\nTZ=Asia/Tokyo\nHOME=/srv\nMAILTO=ops@example.com\nLOGNAME=x\n"
        "RANDOM_DELAY=15\n-0 3 * * * tidy\n"
    )
    step = step_of(draft)
    assert step["env"] == {"PATH": "/usr/bin:/bin", "TZ": "Asia/Tokyo", "HOME": "/srv"}
    assert step["workspace"] == "/srv"
    assert draft.document["schedule"]["jitter"] == "15m"
    assert "timezone" not in draft.document
    assert any("ops@example.com" in comment for comment in draft.comments)
    assert [note.split()[0] for note in draft.notes] == ["nothing", "TZ", "the", "it"]


def test_the_zone_of_its_times() -> None:
    draft = only("CRON_TZ=Europe/Berlin\n30 2 * * * tidy\n", zone="Asia/Tokyo")
    assert draft.document["timezone"] == "Europe/Berlin"
    assert made(draft).ours[0] == datetime(2026, 2, 1, 1, 30, tzinfo=UTC)
    assert made(draft).same


def test_another_shell_is_started_by_name() -> None:
    step = stored(only("SHELL=/bin/bash\n0 3 * * * [[ -f x ]] && tidy\n"))
    assert (step.job_type.value, step.target) == ("exec", "/bin/bash")
    assert step.args == ("-c", "[[ -f x ]] && tidy")
    assert step.env["SHELL"] == "/bin/bash"


def test_braces_are_no_templates() -> None:
    draft = only("X={{y\n0 3 * * * docker ps --format '{{.Names}}'%{{in\n")
    workflow = parse(made(draft).text).documents[0].workflow
    assert workflow is not None
    (step,) = workflow.steps.values()
    started = render(workflow, step, Scope(params={}, run={}, env={}, steps={}))
    assert started.argv == ("/bin/sh", "-c", "docker ps --format '{{.Names}}'")
    assert started.stdin == "{{in\n"
    assert started.env == {"X": "{{y"}


@pytest.mark.parametrize(
    "command",
    [
        "echo 'a: b' # c",
        "  test -x /x || ( cd / && run-parts --report /etc/cron.daily )",
        'echo "double \'single\' \\"both\\"" $HOME `x` $(y) *',
        "- starts like a list",
        "echo\ttab",
        "echo 夜間",
        "true",
        "123",
    ],
)
def test_the_command_is_kept_letter_by_letter(command: str) -> None:
    found = stored(only(f"0 3 * * * {command}\n"))
    assert found.target == command.lstrip()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/Backup.sh --all", "backup"),
        ("cd /srv && A=1 nice -n 10 python3 /opt/daily report.py", "daily"),
        ("[ -x /usr/sbin/anacron ] || /usr/sbin/anacron-run", "anacron-run"),
        ("test -x /x && timeout 5m flock -n tidy", "tidy"),
        ("( /opt/a.b.py )", "a-b"),
        ("echo 'unclosed", "echo"),
        ("夜間", "cron-job"),
        ("x" * 80, "x" * 50),
    ],
)
def test_names_come_from_the_command(command: str, name: str) -> None:
    assert command_name(command) == name


def test_names_are_unique() -> None:
    found = imported("0 1 * * * tidy\n0 2 * * * tidy\n0 3 * * * ./tidy.sh\n")
    assert [draft.name for draft in found.drafts] == ["tidy", "tidy-2", "tidy-3"]


def test_a_crontab_of_thousands_of_lines_is_read_in_linear_time() -> None:
    """Each name was compared with all before it: seven thousand lines took ten seconds."""

    def spent(count: int) -> float:
        began = time.process_time()
        assert len(imported("@reboot tidy\n" * count).drafts) == count
        return time.process_time() - began

    few = min(spent(500) for _ in range(3))
    assert spent(5000) < 10 * 3 * few + 0.5


def test_reboot_has_no_times() -> None:
    result = made(only("@reboot /opt/start\n"))
    assert (result.theirs, result.ours, result.same) == (None, [], None)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "when",
    [
        "30 2 * * *",
        "*/20 2 * * *",
        "15 * * * *",
        "0 */2 * * *",
        "0 0 13 * fri",
        "0 12 */2 * mon",
        "30 1,2 29 2 *",
        "0 9-17/4 * jan-mar sat-sun",
        "0 0 1 1 7",
        "10-50/20 1-3 25-31 3,10 *",
    ],
)
@pytest.mark.parametrize("year", [2026, 2027])
def test_both_computations_agree_also_where_clocks_change(when: str, zone: str, year: int) -> None:
    draft = only(f"{when} tidy\n", zone=zone)
    for month, day in ((3, 7), (3, 27), (4, 3), (10, 2), (10, 24), (10, 31)):
        after = datetime(year, month, day, 12, tzinfo=UTC)
        result = written(draft, after=after, count=10)
        assert len(result.ours) == 10
        assert result.theirs == result.ours


def test_a_delay_is_left_out_where_a_boot_says_when() -> None:
    draft = only("RANDOM_DELAY=15\n@reboot tidy")
    assert "jitter" not in draft.document["schedule"]
    assert any("RANDOM_DELAY is left out" in note for note in draft.notes)
    assert parse(made(draft).text).ok
