"""`toban system doctor`, and what `toban system info` says of the daemon's health."""

from __future__ import annotations

import grpc
import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from doubles.daemon.fake_errors import info
from toban.v1 import system_pb2

from .conftest import Cli, OnTerminal

OK = system_pb2.FINDING_STATUS_OK
WARNING = system_pb2.FINDING_STATUS_WARNING
FAILED = system_pb2.FINDING_STATUS_FAILED
REPAIRED = system_pb2.FINDING_STATUS_REPAIRED


def finding(check: str, status: system_pb2.FindingStatus.ValueType, hint: str = "") -> system_pb2.Finding:
    return system_pb2.Finding(check=check, status=status, detail=f"about {check}", hint=hint)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [([OK], 0), ([OK, WARNING], 0), ([OK, REPAIRED], 0), ([REPAIRED, FAILED, OK], 1), ([], 0)],
)
def test_the_exit_code_says_whether_something_is_wrong(
    cli: Cli, daemon: FakeDaemon, statuses: list[system_pb2.FindingStatus.ValueType], code: int
) -> None:
    daemon.findings = [finding(f"n{index}", status) for index, status in enumerate(statuses)]
    for form in ("table", "json", "yaml", "name"):
        assert cli("system", "doctor", "-o", form).code == code


def test_a_table_with_marks(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.findings = [
        finding("database", OK),
        finding("clock", WARNING, "set it"),
        finding("space", FAILED),
        finding("ballast", REPAIRED),
    ]
    result = cli("system", "doctor")
    assert [line.split()[:3] for line in result.out.splitlines()] == [
        ["STATUS", "CHECK", "FOUND"],
        ["✓", "ok", "database"],
        ["!", "warning", "clock"],
        ["✗", "failed", "space"],
        ["+", "repaired", "ballast"],
    ]
    assert result.out.splitlines()[2].endswith("about clock     set it")
    assert "\x1b" not in result.out


def test_json_for_programs(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.findings = [finding("space", FAILED, "free some")]
    result = cli("system", "doctor", "-o", "json")
    assert result.data == [
        {
            "check": "space",
            "status": "failed",
            "detail": "about space",
            "hint": "free some",
        }
    ]


def test_repair_is_asked_for_only_when_it_is(cli: Cli, daemon: FakeDaemon) -> None:
    cli("system", "doctor")
    cli("system", "doctor", "--repair")
    asked = [each.repair for each in daemon.seen if isinstance(each, system_pb2.DoctorRequest)]
    assert asked == [False, True]


def test_a_status_of_the_future_is_worth_a_look(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.findings = [system_pb2.Finding(check="new", detail="?")]
    daemon.findings[0].status = 17  # type: ignore[assignment]
    result = cli("system", "doctor")
    assert (result.code, result.out.splitlines()[1].split()[:2]) == (0, ["!", "warning"])


def test_colours_on_a_terminal(on_terminal: OnTerminal, daemon: FakeDaemon) -> None:
    daemon.findings = [finding("space", FAILED)]
    terminal = on_terminal("--server", daemon.address, "system", "doctor")
    assert terminal.end() == 1
    assert "\x1b[31m✗ failed".encode() in terminal.raw


def test_info_tells_how_the_daemon_does(cli: Cli, daemon: FakeDaemon) -> None:
    assert "health" not in cli("system", "info").out, "an older daemon does not say"
    daemon.info.health.status = system_pb2.HEALTH_STATUS_OK
    daemon.info.running_processes = 3
    daemon.info.max_attempts_running = 256
    lines = cli("system", "info").out.splitlines()
    assert "health:            ok" in lines
    assert "running processes: 3 of at most 256" in lines
    daemon.info.waiting_attempts = 2
    daemon.info.health.status = system_pb2.HEALTH_STATUS_REFUSING
    condition = daemon.info.health.conditions.add(
        name="disk", status=system_pb2.HEALTH_STATUS_REFUSING, detail="/s is full"
    )
    condition.since.FromJsonString("2026-02-01T00:15:30Z")
    lines = cli("system", "info").out.splitlines()
    assert "running processes: 3 of at most 256, 2 waiting" in lines
    assert lines[-2:] == [
        "health:            refusing",
        "  disk:            refusing since 2026-02-01 09:15:30 JST: /s is full",
    ]


def test_a_full_disk_says_where_to_look(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("w")
    text = "cannot start a run: the file system of /s has 1.0 MiB free"
    daemon.fail["StartRun"] = (grpc.StatusCode.RESOURCE_EXHAUSTED, text, (info("DISK_FULL"),))
    result = cli("run", "w")
    assert result.code == 6
    assert result.err == f"toban: {text}\nhint: `toban system info` shows the daemon's health\n"
