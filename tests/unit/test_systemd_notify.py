"""sd_notify: datagrams, to a path or an abstract name, and never a reason to fail."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from toband.app.service_status import ServiceStatus, status_text
from toband.engine.health.health_conditions import Condition
from toband.ports import HealthStatus
from toband.systemd_notify import notify, reloading, watchdog_seconds


def test_states_go_out_as_one_datagram(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        # The name of a socket is short, and that of a test may be long.
        tempfile.TemporaryDirectory(prefix="tb-") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        sock.bind(f"{directory}/notify")
        sock.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        notify("READY=1", "STATUS=serving")
        assert sock.recv(100) == b"READY=1\nSTATUS=serving"


def test_abstract_names(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"toban-test-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("STOPPING=1")
        assert sock.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@toban-nobody-listens", "x" * 300])
def test_nobody_who_listens_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """The next datagram that the service manager gets."""
    with (
        tempfile.TemporaryDirectory(prefix="tb-") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        sock.bind(f"{directory}/notify")
        sock.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        yield lambda: sock.recv(1000).decode()


def test_a_reload_has_an_end_also_if_it_fails(received: Callable[[], str]) -> None:
    def reload() -> None:
        with reloading():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        reload()
    announced = received().splitlines()
    assert announced[0] == "RELOADING=1"
    assert announced[1].removeprefix("MONOTONIC_USEC=").isdecimal()
    assert received() == "READY=1"


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_that_of_this_process(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environment) == seconds


async def test_the_status_feeds_the_watchdog_and_says_what_the_daemon_does(
    received: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    text = "idle"
    status = ServiceStatus()
    feeding = asyncio.create_task(status.run())
    status.starting("opening the database")
    assert received() == "STATUS=opening the database"
    assert await asyncio.to_thread(received) == "EXTEND_TIMEOUT_USEC=120000000"

    status.ready(lambda: text)
    assert received().splitlines() == ["READY=1", "STATUS=idle", f"MAINPID={os.getpid()}", "WATCHDOG=1"]
    assert await asyncio.to_thread(received) == "WATCHDOG=1"
    text = "1 run active, 2 steps running"
    while (said := await asyncio.to_thread(received)) == "WATCHDOG=1":
        pass
    assert said == f"STATUS={text}"

    status.stopping("wait", 2, 15)
    while (said := await asyncio.to_thread(received)) == "WATCHDOG=1":
        pass
    assert said == "STOPPING=1\nSTATUS=stopping (policy wait), 2 steps running"
    assert received() == "EXTEND_TIMEOUT_USEC=15000000"
    assert await asyncio.to_thread(received) == "WATCHDOG=1"
    feeding.cancel()


def test_the_status_names_the_worst_condition_first() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    disk = Condition(name="disk", status=HealthStatus.REFUSING, detail="full", since=since)
    watches = Condition(name="watches", status=HealthStatus.DEGRADED, detail="gone", since=since)
    assert status_text(runs=0, steps=0, conditions=()) == "idle"
    assert status_text(runs=1, steps=2, conditions=()) == "1 run active, 2 steps running"
    assert status_text(runs=0, steps=0, conditions=(disk, watches)) == "idle; refusing: disk, watches"
