"""The identity of this installation: its state directory and its machine.

The id is in a file of the state directory, together with the inode of that file. A copied state directory therefore
counts as another installation, although it contains the same id.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import uuid
from datetime import datetime
from typing import Any

from toband import stored_json
from toband.ports import DatabaseOwner
from toband.state_dir import StateDir

FILE = "installation.json"
_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")


def owner_of(state: StateDir, now: datetime) -> DatabaseOwner:
    """This daemon as the database names it. The state directory must be locked by it. Raises OSError."""
    installation = installation_of(state)
    return DatabaseOwner(
        installation=installation,
        # A container may have no machine id; the installation takes its role then.
        machine=_machine_id() or installation,
        host=socket.gethostname(),
        pid=os.getpid(),
        state_dir=os.path.realpath(state.path),
        since=now,
    )


def installation_of(state: StateDir) -> str:
    """The id in the state directory, or a new one if it has none or is a copy. Raises OSError."""
    known = _read(state)
    if known is not None:
        return str(known["id"])
    installation = uuid.uuid4().hex
    _write(state, installation, has_database=False)
    return installation


def note_database(state: StateDir) -> None:
    """Records that this installation has a database. Raises OSError."""
    known = _read(state)
    if known is None or known.get("has_database") is not True:
        _write(state, installation_of(state), has_database=True)


def database_known_by(state: StateDir) -> str:
    """The evidence in the state directory for an earlier database; empty if there is none. Raises OSError."""
    directory = state.join("runs")
    with os.scandir(directory) as entries:
        # Names that begin with a dot are the daemon's own and exist without any run.
        own = (entry for entry in entries if not entry.name.startswith("."))
        if any(entry.is_dir(follow_symlinks=False) for entry in own):
            return f"there are runs in {directory}"
    known = _read(state)
    if known is not None and known.get("has_database") is True:
        return f"{state.join(FILE)} says that there was one"
    return ""


def _read(state: StateDir) -> dict[str, Any] | None:
    """None if the file is missing, damaged, or was copied."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        with open(state.join(FILE), encoding="utf-8") as file:
            known, facts = stored_json.parse(file.read()), os.fstat(file.fileno())
        # A boot may change the device number, and a user may rename the directory, but not both at once.
        same_place = known["device"] == facts.st_dev or known["path"] == os.path.realpath(state.path)
        if known["inode"] == facts.st_ino and same_place and isinstance(known["id"], str):
            return dict(known)
    return None


def _write(state: StateDir, installation: str, *, has_database: bool) -> None:
    def text(facts: os.stat_result) -> str:
        return json.dumps(
            {
                "id": installation,
                "inode": facts.st_ino,
                "device": facts.st_dev,
                "path": os.path.realpath(state.path),
                "has_database": has_database,
            }
        )

    state.write_durably(FILE, text)


if sys.platform == "win32":
    import winreg

    def _machine_id() -> str:
        key = r"SOFTWARE\Microsoft\Cryptography"
        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened,
        ):
            return str(winreg.QueryValueEx(opened, "MachineGuid")[0])
        return ""

else:

    def _machine_id() -> str:
        """The machine id; empty if the system has none."""
        for path in _MACHINE_FILES:
            with (
                contextlib.suppress(OSError),
                open(path, encoding="ascii", errors="replace") as file,
            ):
                found = file.read(64).strip()
                # systemd writes this during the first boot.
                if found and found != "uninitialized":
                    return found
        return ""
