"""Timers and services of systemd: unit files, calendar expressions, command lines, and the workflows made of them."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from toban.cli.imports_machine import calendar_times
from toban.definition import parse
from toban.importing.calendar import parse_calendar, schedule_of
from toban.importing.exec_lines import read_commands
from toban.importing.model import Draft, ImportProblem
from toban.importing.timers import import_timer
from toban.importing.units import parse_bytes, parse_span, read_unit
from toban.importing.writing import written

NOW = datetime(2026, 2, 1, tzinfo=UTC)
SYSTEM = "etc/systemd/system"


def unit(root: Path, name: str, text: str, *, under: str = SYSTEM) -> Path:
    path = root / under / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def timer(
    root: Path, timer: str = "OnCalendar=daily", service: str = "", name: str = "job"
) -> Draft:
    unit(root, f"{name}.timer", f"[Timer]\n{timer}\n")
    unit(root, f"{name}.service", f"[Service]\nType=oneshot\nExecStart=/bin/tidy\n{service}\n")
    return load(root, f"{name}.timer")


def load(root: Path, name: str, **options: Any) -> Draft:
    return import_timer(
        name, root=str(root), zone="UTC", home=lambda user: f"/home/{user}", **options
    )


def steps(draft: Draft) -> list[dict[str, Any]]:
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
    once = parse_calendar("2027-06-01 09:00")
    assert schedule_of(once, berlin) == {"at": "2027-06-01T07:00:00+00:00"}


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
    ],
)
def test_calendar_expressions_without_counterpart(text: str, reason: str) -> None:
    with pytest.raises(ImportProblem, match=reason):
        schedule_of(parse_calendar(text), ZoneInfo("UTC"))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("text", [text for text, _ in EXPRESSIONS])
def test_both_computations_agree_also_where_clocks_change(
    tmp_path: Path, text: str, zone: str
) -> None:
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
    asked = subprocess.run(
        ["systemd-analyze", "calendar", "--base-time=@0", "daily"], capture_output=True, check=False
    )
    if asked.returncode:
        pytest.skip("this systemd-analyze cannot count from a given time")
    for text in ("*-*-* 02:30:00", "*:0/20", "Mon *-*-01..07 04:00", "*-*~01 23:00"):
        calendar = parse_calendar(text)
        assert calendar_times(calendar, berlin)(after, 10) == calendar.times(berlin)(after, 10)


def test_drop_ins_and_continued_lines(tmp_path: Path) -> None:
    unit(tmp_path, "a.service", "; no\n[Service]\nExecStart=/bin/a \\\n  # not this\n  b\nNice=1\n")
    unit(tmp_path, "a.service.d/20.conf", "[Service]\nNice=3\n")
    unit(tmp_path, "a.service.d/10.conf", "[Service]\nExecStart=\nExecStart=/bin/c\nNice=2\n")
    unit(tmp_path, "a.service.d/20.conf", "[Service]\nNice=9\n", under="usr/lib/systemd/system")
    found = read_unit("a.service", root=str(tmp_path))
    assert found.all("Service", "ExecStart") == ["/bin/c"]
    assert found.last("Service", "Nice") == "3"


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
    draft = timer(tmp_path, "OnBootSec=15min\nOnUnitActiveSec=1d\nPersistent=yes")
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
    assert str(caught.value) == (
        "no counterpart: WakeSystem=yes; job.service: no counterpart: PrivateTmp=yes"
    )


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


def test_quotes_of_command_lines() -> None:
    line = r"""-:/bin/x "a b" 'c "d"' e\x41f g"h \n $X \; "$$" """
    (command,) = read_commands(line, env={}, specifiers={"%": "%"})
    assert command.arguments == ("a b", 'c "d"', "eAf", 'g"h', "\n", "$X", ";", "$$")
    assert command.may_fail


def test_spans_and_sizes() -> None:
    assert parse_span("1h 30min") == 5400
    assert parse_span("2w") == 1209600
    assert parse_span("90") == 90
    assert parse_span("250ms") == 0.25
    assert parse_span("infinity") is None
    assert parse_bytes("2G") == 2 << 30
    assert parse_bytes("infinity") is None
