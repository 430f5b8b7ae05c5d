"""The sd_notify protocol: tells systemd what the service is doing, by datagrams to its socket."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping


def notify(*states: str) -> None:
    """Sends states such as READY=1 if NOTIFY_SOCKET is set. Never fails."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            # A full socket must not stop the event loop.
            sock.setblocking(False)
            sock.connect(address)
            sock.sendall("\n".join(states).encode())
    except OSError:
        return


@contextlib.contextmanager
def reloading() -> Iterator[None]:
    """Announces a reload of the configuration, and its end, also if it fails: the service then goes on as before."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        yield
    finally:
        notify("READY=1")


def extend(seconds: float) -> None:
    """Asks for this much time from now on, while the service starts or stops."""
    notify(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """How long the service may be silent before systemd restarts it; None if systemd does not watch this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() and text.isascii() and int(text) > 0 else None
