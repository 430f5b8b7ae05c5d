"""The journal's own protocol: entries with fields, one datagram each, which `journalctl FIELD=value` selects."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Final

SOCKET: Final = "/run/systemd/journal/socket"
# The journal cuts longer fields; a traceback has its end, and so the reason, within this.
_LONGEST: Final = 256 * 1024
# Seconds.
_PATIENCE: Final = 0.2
_NAME: Final = re.compile("[^A-Z0-9_]")


class JournalSocket:
    """May be used by any thread. An entry that the journal does not take is lost, and fails no caller."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket = _datagram_socket()

    def send(self, fields: Mapping[str, str]) -> bool:
        """Whether the journal takes entries; not while it is restarted."""
        entry = b"".join(_field(name, value) for name, value in fields.items())
        try:
            self._socket.sendto(entry, self._path)
        except TimeoutError:
            # Lost: a journal that hangs must not hang the daemon, and standard error would lead to it too.
            return True
        except OSError as error:
            # ENOBUFS: many entries wait already, and this one is large.
            return error.errno in (errno.EMSGSIZE, errno.ENOBUFS) and self._send_as_file(entry)
        return True

    def close(self) -> None:
        self._socket.close()

    def _send_as_file(self, entry: bytes) -> bool:
        """A datagram that is too large goes as a sealed file in memory."""
        if sys.platform != "linux":
            return False
        import fcntl

        try:
            file = os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return False
        try:
            with contextlib.suppress(OSError):
                rest = memoryview(entry)
                while rest:
                    rest = rest[os.write(file, rest) :]
                seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))
                self._socket.sendmsg([], [rights], 0, self._path)
                return True
            return False
        finally:
            os.close(file)


def _datagram_socket() -> socket.socket:
    if sys.platform == "win32":
        raise OSError("there is no journal on Windows")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    made.settimeout(_PATIENCE)
    return made


def is_journal(descriptor: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this stream, such as standard error, leads to the journal."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(facts.st_dev), str(facts.st_ino))


def field_name(key: str) -> str:
    """A name that the journal takes: letters, digits and underscores, not too long."""
    return f"TOBAN_{_NAME.sub('_', key.upper())}"[:64]


def _field(name: str, value: str) -> bytes:
    content = value.encode(errors="backslashreplace")[:_LONGEST]
    if b"\n" not in content:
        return name.encode() + b"=" + content + b"\n"
    # With a newline in it a value has its length in front.
    return name.encode() + b"\n" + len(content).to_bytes(8, "little") + content + b"\n"
