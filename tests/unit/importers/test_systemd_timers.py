"""Timers and services of systemd: unit files, calendar expressions, command lines, and the workflows made of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from toban.cli.args.import_machine import calendar_times
from toban.definition import parse
from toban.importers.import_model import ImportProblem, WorkflowDraft
from toban.importers.systemd_calendar import parse_calendar, schedule_of
from toban.importers.systemd_services import specifiers_of
from toban.importers.systemd_timers import import_timer
from toban.importers.workflow_writer import written

NOW = datetime(2026, 2, 1, tzinfo=UTC)
SYSTEM = "etc/systemd/system"


def unit(root: Path, name: str, text: str, *, under: str = SYSTEM) -> Path:
    path = root / under / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def timer(root: Path, timer: str = "OnCalendar=daily", service: str = "", name: str = "job") -> WorkflowDraft:
    unit(root, f"{name}.timer", f"[Timer]\n{timer}\n")
    unit(root, f"{name}.service", f"[Service]\nType=oneshot\nExecStart=/bin/tidy\n{service}\n")
    return load(root, f"{name}.timer")


def load(root: Path, name: str, **options: Any) -> WorkflowDraft:
    return import_timer(name, root=str(root), zone="UTC", home=lambda user: f"/home/{user}", **options)


def steps(draft: WorkflowDraft) -> list[dict[str, Any]]:
    found = draft.document["steps"]
    assert parse(written(draft, after=NOW, count=1).text).problems == ()
    assert isinstance(found, list)
    return found


EXPRESSIONS = [
    ("daily", "0 0 * * *"),
    ("hourly", "0 0-23 * * *"),
    ("weekly", "0 0 * * 1"),
    ("monthly", "0 0 1 * *"),
    ("quarterly", "0 0 1 1-10/3 *"),
    ("yearly", "0 0 1 1 *"),
    ("bi-annually", "0 0 1 1,7 *"),
    ("Mon..Fri 09:30", "30 9 * * 1-5"),
    ("Sat,Sun *-*-* 10,14:00", "0 10,14 * * 0,6"),
    ("*-*-* 02:30:00", "30 2 * * *"),
    ("*:0/15", "0-45/15 0-23 * * *"),
    ("*-*-* 00/2:30", "30 0-22/2 * * *"),
    ("*-02-29 12:00:30", "30 0 12 29 2 *"),
    ("10-31", "0 0 31 10 *"),
    ("*-*~01 23:00", "0 23 L * *"),
    ("Mon *-*-01..07 04:00", "0 4 */31,2-7 * 1"),
    ("Sun *-*-08..14 04:00", "0 4 8-14 * */7"),
    ("Thursday", "0 0 * * 4"),
    ("*:0..30/45", "0 0-23 * * *"),
]


@pytest.mark.parametrize(("text", "cron"), EXPRESSIONS)
def test_calendar_expressions_as_crontab(text: str, cron: str) -> None:
    calendar = parse_calendar(text)
    assert schedule_of(calendar, ZoneInfo("UTC")) == {"cron": cron, "gap": "skip"}


def test_zones_years_and_single_times() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    calendar = parse_calendar("2027..2028-*-* 03:00 Europe/Berlin")
    assert schedule_of(calendar, berlin) == {
        "cron": "0 3 * * *",
        "gap": "skip",
        "timezone": "Europe/Berlin",
        "start": "2026-12-31T23:00:00+00:00",
        "end": "2028-12-31T22:59:59+00:00",
    }
    for text in ("2027-06-01 09:00", "27-06-01 09:00"):
        assert schedule_of(parse_calendar(text), berlin) == {"at": "2027-06-01T07:00:00+00:00"}
    assert parse_calendar("70..71-01-01").years == frozenset({1970, 1971})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tomorrow", 'cannot read "tomorrow"'),
        ("", "cannot read the calendar expression"),
        ("*-*-* 25:00", "expected 0 to 23"),
        ("*-*-* 0:0:0.5", "fractions of a second"),
        ("*-*~03", "counts days from the end"),
        ("Tue *-*-08..14", "a day of the week and of the month at once"),
        ("Fri..Mon", "cannot go backwards"),
        ("daily Mars/Base", "unknown time zone"),
        ("2027,2029-*-* 0:0", "not in one piece"),
        ("2027-02-30", "never due"),
        ("1-2-3-4", "cannot read the date"),
        ("1:2:3:4", "cannot read the time"),
        ("100-01-01", "expected 1970 to 2199"),
        ("*-*-* */2:00", r"systemd reads \* only alone: write 0/2"),
        ("*-*-* *:*/5", r"systemd reads \* only alone: write 0/5"),
        ("*-*-* *:*:*/10", r"systemd reads \* only alone: write 0/10"),
        ("*-*-*/2", r"systemd reads \* only alone: write 1/2"),
        ("*-*/3-01", r"systemd reads \* only alone: write 1/3"),
        ("*-*-1,*", r"systemd reads \* only alone"),
        ("*/2-*-*", "systemd reads \\* only alone"),
        ("*-*-* 1/25:00", "a step of 1 or more that stays below 24"),
        ("*-*-* 0/0:00", "a step of 1 or more that stays below 24"),
    ],
)
def test_calendar_expressions_without_counterpart(text: str, reason: str) -> None:
    with pytest.raises(ImportProblem, match=reason):
        schedule_of(parse_calendar(text), ZoneInfo("UTC"))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("text", [text for text, _ in EXPRESSIONS])
def test_both_computations_agree_also_where_clocks_change(tmp_path: Path, text: str, zone: str) -> None:
    draft = timer(tmp_path, f"OnCalendar={text} {zone}")
    for month, day in ((3, 7), (3, 28), (10, 24), (10, 31)):
        result = written(draft, after=datetime(2026, month, day, 12, tzinfo=UTC), count=10)
        assert len(result.ours) == 10
        assert result.theirs == result.ours


def test_systemd_itself_agrees() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    berlin = ZoneInfo("Europe/Berlin")
    after = datetime(2026, 10, 24, 12, tzinfo=UTC)
    asked = subprocess.run(["systemd-analyze", "calendar", "--base-time=@0", "daily"], capture_output=True, check=False)
    if asked.returncode:
        pytest.skip("this systemd-analyze cannot count from a given time")
    for text in ("*-*-* 02:30:00", "*:0/20", "Mon *-*-01..07 04:00", "*-*~01 23:00", "27-*-* 9:0"):
        calendar = parse_calendar(text)
        assert calendar_times(calendar, berlin)(after, 10) == calendar.times(berlin)(after, 10)


SYSTEMD_REFUSES = 'echo "Failed to parse calendar specification: Invalid argument" >&2; exit 1'


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        (SYSTEMD_REFUSES, True),
        # One without data of time zones reads it with none.
        (f'case "$*" in *Berlin*) {SYSTEMD_REFUSES};; esac', False),
        ('echo "unrecognized option --base-time" >&2; exit 1', False),
        ("exit 1", False),
    ],
)
def test_what_systemd_cannot_parse_is_no_calendar_and_other_failures_are_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, refused: bool
) -> None:
    program = tmp_path / "systemd-analyze"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    calendar = parse_calendar("02:30")
    berlin = ZoneInfo("Europe/Berlin")
    times = calendar_times(calendar, berlin)
    if refused:
        with pytest.raises(ImportProblem, match='systemd cannot read the expression "02:30"'):
            times(NOW, 3)
    else:
        assert times(NOW, 3) == calendar.times(berlin)(NOW, 3)


def test_units_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ImportProblem, match=r"there is no unit x\.timer"):
        load(tmp_path, "x")
    unit(tmp_path, "x.timer", "[Timer]\nnonsense\n")
    with pytest.raises(ImportProblem, match=r"x\.timer:2: expected"):
        load(tmp_path, "x.timer")


def test_a_timer_becomes_a_workflow(tmp_path: Path) -> None:
    draft = timer(
        tmp_path,
        "OnCalendar=*-*-* 03:00\nPersistent=true\nRandomizedDelaySec=10min\nAccuracySec=1us",
        "User=alice\nNice=5\nMemoryMax=512M\nTasksMax=20\nCPUQuota=150%\nTimeoutStartSec=1h 30min\n"
        'TimeoutStopSec=5\nSuccessExitStatus=3 1\nEnvironment=A=1 "B=x y"\nWorkingDirectory=~',
    )
    assert draft.document["schedule"] == {
        "cron": "0 3 * * *",
        "gap": "skip",
        "misfire": "run_once",
        "misfire_grace": "3650d",
        "jitter": "10m",
    }
    assert steps(draft) == [
        {
            "name": "tidy",
            "job_type": "exec",
            "target": "/bin/tidy",
            "workspace": "/home/alice",
            "env": {"A": "1", "B": "x y"},
            "user": "alice",
            "timeout": "1h30m",
            "kill_grace": "5s",
            "success_codes": [0, 1, 3],
            "resources": {"memory": "512MiB", "nice": 5, "pids": 20, "cpu": 1.5},
        }
    ]
    assert [note.partition(" ")[0] for note in draft.notes] == [
        "RandomizedDelaySec",
        "AccuracySec=1us",
    ]


def test_boots_and_intervals(tmp_path: Path) -> None:
    draft = timer(tmp_path, "OnBootSec=15min\nOnUnitActiveSec=1d\nPersistent=yes", "User=alice")
    assert draft.document["schedule"] == [
        {"cron": "@reboot", "misfire": "skip"},
        {"every": "1d", "misfire": "skip"},
    ]
    result = written(draft, after=NOW, count=2)
    assert (result.theirs, result.same) == (None, None)
    assert [at.day for at in result.ours] == [2, 3]
    assert len(draft.notes) == 2


def test_commands_are_steps_in_their_order(tmp_path: Path) -> None:
    unit(tmp_path, "w.timer", "[Timer]\nOnCalendar=daily\nUnit=work@night.service\n")
    unit(
        tmp_path,
        "work@.service",
        "[Unit]\nDescription=Work at %i\nAfter=network.target\n[Service]\nType=oneshot\nUser=alice\n"
        "EnvironmentFile=-/etc/default/work\nEnvironment='OPTS=-a -b'\n"
        "ExecStartPre=-/bin/mkdir -p /x/%i\nExecStart=/bin/work $OPTS ${OPTS} {{x}} ; +/bin/work 100%%\n"
        "[Install]\nWantedBy=x\n",
    )
    draft = load(tmp_path, "w")
    mkdir, first, second = steps(draft)
    assert (mkdir["on_failure"], mkdir["args"]) == ("continue", ["-p", "/x/night"])
    assert first["args"] == ["-a", "-b", "-a -b", '{{ "{{" }}x}}']
    assert (second["name"], second["args"], second["user"]) == ("work-2", ["100%"], "root")
    assert first["workspace"] == "/"
    assert any("EnvironmentFile=-/etc/default/work" in note for note in draft.notes)
    assert any("After=network.target" in note for note in draft.notes)


@pytest.mark.parametrize(
    ("directives", "reason"),
    [
        (
            "PrivateTmp=yes\nProtectSystem=strict",
            "no counterpart: PrivateTmp=yes, ProtectSystem=strict",
        ),
        ("Restart=on-failure", "Restart=on-failure"),
        ("ExecStopPost=/bin/x", "ExecStopPost"),
        ("Type=notify", "Type=notify"),
        ("MemoryMax=10%", 'the size "10%"'),
        ("TimeoutStartSec=soon", 'cannot read the time span "soon"'),
        ("SuccessExitStatus=TEMPFAIL", "only numbers"),
        ("Environment=nothing", "expected NAME=value"),
        ("ExecStart=/bin/x $UNSET", "the variable UNSET"),
        ("ExecStart=/bin/x %q", "the specifier %q"),
        ("ExecStart=/bin/x 'open", "a quote is not closed"),
        ("ExecStart=@/bin/x y", "the prefix @"),
        ("Nice=much", "Nice=much"),
        ("StandardOutput=file:/var/log/x", "no counterpart: StandardOutput=file:/var/log/x"),
        ("StandardError=append:/var/log/x", "no counterpart: StandardError=append:/var/log/x"),
        ("StandardOutput=truncate:/var/log/x", "no counterpart: StandardOutput=truncate:"),
        ("StandardOutput=tty", "no counterpart: StandardOutput=tty"),
        ("DynamicUser=yes", "no counterpart: DynamicUser=yes"),
        (
            "Type=simple\nExecStartPost=/bin/y",
            "no counterpart: ExecStartPost=/bin/y, which Type=simple starts beside the main process",
        ),
    ],
)
def test_what_has_no_counterpart_is_named(tmp_path: Path, directives: str, reason: str) -> None:
    with pytest.raises(ImportProblem) as caught:
        timer(tmp_path, service=directives)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("directives", "reason"),
    [
        ("OnCalendar=daily\nWakeSystem=true", "WakeSystem=true"),
        ("OnUnitInactiveSec=1h", "OnUnitInactiveSec=1h"),
        ("OnCalendar=daily\nUnit=x.target", "only services"),
        ("Persistent=true", "does not say when"),
    ],
)
def test_timers_without_counterpart(tmp_path: Path, directives: str, reason: str) -> None:
    with pytest.raises(ImportProblem) as caught:
        timer(tmp_path, directives)
    assert reason in str(caught.value)


def test_all_that_is_wrong_with_a_timer_and_its_service_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ImportProblem) as caught:
        timer(tmp_path, "OnCalendar=daily\nWakeSystem=yes", "PrivateTmp=yes\nPrivateUsers=no")
    assert str(caught.value) == ("no counterpart: WakeSystem=yes; job.service: no counterpart: PrivateTmp=yes")


def test_a_template_is_no_timer(tmp_path: Path) -> None:
    with pytest.raises(ImportProblem, match=r"name an instance, as in dump@NAME\.timer"):
        load(tmp_path, "dump@.timer")


def test_directives_may_be_left_out_by_name(tmp_path: Path) -> None:
    with pytest.raises(ImportProblem):
        timer(tmp_path, service="PrivateTmp=yes")
    draft = load(tmp_path, "job.timer", ignored=["PrivateTmp"])
    assert draft.comments[1] == "Left out as asked: PrivateTmp=yes"


def test_a_file_has_its_service_beside_it(tmp_path: Path) -> None:
    unit(tmp_path, "near.timer", "[Timer]\nOnCalendar=daily\n", under="here")
    unit(tmp_path, "near.service", "[Service]\nExecStart=/bin/near\n", under="here")
    draft = load(tmp_path / "nowhere", str(tmp_path / "here" / "near.timer"))
    assert draft.name == "near"
    assert steps(draft)[0]["target"] == "/bin/near"


def test_output_that_is_kept_anyway_and_what_is_off_need_no_counterpart(tmp_path: Path) -> None:
    draft = timer(
        tmp_path,
        service="StandardInput=null\nStandardOutput=journal\nStandardError=inherit\nDynamicUser=no\n"
        "PrivateTmp=false\nRemainAfterExit=n\nUser=alice",
    )
    assert draft.notes == []
    draft = timer(tmp_path, service="StandardOutput=null\nStandardError=journal+console\nUser=alice")
    assert draft.notes == [
        "StandardOutput=null: here the output is kept, and nothing else is done with it",
        "StandardError=journal+console: here the output is kept, and nothing else is done with it",
    ]


def test_a_service_without_a_user_runs_as_root_as_it_did(tmp_path: Path) -> None:
    draft = timer(tmp_path, service="ExecStart=+/bin/more")
    assert [step["user"] for step in steps(draft)] == ["root", "root"]
    assert draft.notes == ["there is no User=: it runs as root, as in systemd, for which the daemon must be root"]


def test_a_unit_of_a_user_runs_as_the_user_of_the_daemon(tmp_path: Path) -> None:
    home = "home/alice/.config/systemd/user"
    file = unit(tmp_path, "near.timer", "[Timer]\nOnCalendar=daily\n", under=home)
    unit(tmp_path, "near.service", "[Service]\nExecStart=/bin/near\n", under=home)
    draft = load(tmp_path, str(file))
    assert "user" not in steps(draft)[0]
    assert draft.notes == ["it is a user's unit: it runs as the daemon's user unless a step has a user"]
    unit(tmp_path, "near.service", "[Service]\nExecStart=/bin/near %h\n", under=home)
    with pytest.raises(ImportProblem, match="the specifier %h has no value here"):
        load(tmp_path, str(file))


def test_exit_codes_of_several_lines_add_up_and_an_empty_one_takes_them_back(
    tmp_path: Path,
) -> None:
    draft = timer(tmp_path, service="SuccessExitStatus=3\nSuccessExitStatus=4 5")
    assert steps(draft)[0]["success_codes"] == [0, 3, 4, 5]
    draft = timer(tmp_path, service="SuccessExitStatus=3\nSuccessExitStatus=\nSuccessExitStatus=4")
    assert steps(draft)[0]["success_codes"] == [0, 4]


@pytest.mark.parametrize("directive", ["TimeoutStopSec=infinity", "TimeoutStopSec=0", "TimeoutSec=0"])
def test_a_stop_without_an_end_never_comes_to_a_kill(tmp_path: Path, directive: str) -> None:
    draft = timer(tmp_path, service=f"{directive}\nUser=alice")
    assert steps(draft)[0]["kill_grace"] == "3650d"
    assert draft.notes == ["the stop has no end in systemd: kill_grace is ten years, which is practically none"]


def test_the_time_to_stop_is_that_of_systemd_unless_it_is_given(tmp_path: Path) -> None:
    assert steps(timer(tmp_path))[0]["kill_grace"] == "1m30s"
    assert steps(timer(tmp_path, service="TimeoutStopSec=5"))[0]["kill_grace"] == "5s"


def test_quotes_in_the_environment_of_a_service(tmp_path: Path) -> None:
    draft = timer(
        tmp_path,
        service="Environment=FOO=\"a b\" BAR='q' \"OPTS=--name 'a b' c\"\nExecStart=/bin/more $OPTS",
    )
    tidy, more = steps(draft)
    assert tidy["env"] == {"FOO": "a b", "BAR": "q", "OPTS": "--name 'a b' c"}
    assert more["args"] == ["--name", "a b", "c"]


def test_names_of_units_without_their_escapes(tmp_path: Path) -> None:
    unit(tmp_path, "pre-fix@.timer", "[Timer]\nOnCalendar=daily\n")
    unit(tmp_path, "pre-fix@.service", "[Service]\nExecStart=/bin/x %p %P %i %I\n")
    draft = load(tmp_path, "pre-fix@x-y.timer")
    assert steps(draft)[0]["args"] == ["pre-fix", "pre/fix", "x-y", "x/y"]
    known = specifiers_of(r"a@x-y\x2dz\xc3\xa9.service")
    assert (known["i"], known["I"]) == (r"x-y\x2dz\xc3\xa9", "x/y-zé")
    assert "I" not in specifiers_of(r"a@\xff.service")


def test_a_command_after_the_start_is_a_step_of_a_oneshot_and_may_be_left_out_of_others(
    tmp_path: Path,
) -> None:
    draft = timer(tmp_path, service="ExecStartPost=/bin/after")
    assert [step["name"] for step in steps(draft)] == ["tidy", "after"]
    with pytest.raises(ImportProblem):
        timer(tmp_path, service="Type=simple\nExecStartPost=/bin/after")
    draft = load(tmp_path, "job.timer", ignored=["ExecStartPost"])
    assert [step["name"] for step in steps(draft)] == ["tidy"]
    assert draft.comments[1] == "Left out as asked: ExecStartPost=/bin/after"


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_another_name_of_a_timer_starts_the_service_of_its_own_name(tmp_path: Path) -> None:
    timer(tmp_path, "OnCalendar=daily", "Environment=NAME=%n")
    (tmp_path / SYSTEM / "alias.timer").symlink_to("job.timer")
    draft = load(tmp_path, "alias.timer")
    assert draft.name == "job"
    assert draft.document["steps"][0]["env"] == {"NAME": "job.service"}
    assert "alias.timer is another name of job.timer" in draft.notes


def test_a_single_time_that_the_clocks_pass_over_is_never_due(tmp_path: Path) -> None:
    with pytest.raises(ImportProblem, match="is never due: the clocks skip it"):
        timer(tmp_path, "OnCalendar=2027-03-28 02:30:00 Europe/Berlin")
    twice = timer(tmp_path, "OnCalendar=2026-10-25 02:30:00 Europe/Berlin")
    assert twice.document["schedule"]["at"] == "2026-10-25T00:30:00+00:00"
