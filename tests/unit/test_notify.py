"""sd_notify: one datagram, to a path or an abstract name, and never a reason to fail."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from toband.notify import notify


def test_states_go_out_as_one_datagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"{tmp_path}/notify")
        sock.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")
        notify("READY=1", "STATUS=serving")
        assert sock.recv(100) == b"READY=1\nSTATUS=serving"


def test_abstract_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0toban-test-{tmp_path}")
        sock.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@toban-test-{tmp_path}")
        notify("STOPPING=1")
        assert sock.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@toban-nobody-listens", "x" * 300])
def test_nobody_who_listens_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")
