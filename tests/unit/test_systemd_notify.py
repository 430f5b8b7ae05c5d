"""sd_notify: one datagram, to a path or an abstract name, and never a reason to fail."""

from __future__ import annotations

import os
import socket
import tempfile

import pytest

from toband.systemd_notify import notify


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
