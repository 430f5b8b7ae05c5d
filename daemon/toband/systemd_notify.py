"""The sd_notify protocol: one datagram to systemd."""

from __future__ import annotations

import os
import socket


def notify(*states: str) -> None:
    """Sends states such as READY=1 if NOTIFY_SOCKET is set. Never fails."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            sock.sendall("\n".join(states).encode())
    except OSError:
        return
