"""Where the service keeps its files, and who may use them."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit

SERVICE: Final = "toban"
_SYSTEM: Final = "*S-1-5-18"
_ADMINISTRATORS: Final = "*S-1-5-32-544"
_CONFIG: Final = """\
# Configuration of the Toban service. `toband --config FILE --check-config` prints every key with its effective value,
# docs/configuration.md describes them. The service reads this file when it starts.

# The database, the logs of all runs, and the token with which administrators of this machine call the daemon.
state_dir = '{directory}'

[log]
# The daemon's own log, as JSON lines.
file = '{log}'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlace:
    directory: str

    @property
    def config(self) -> str:
        return os.path.join(self.directory, "toband.toml")

    @property
    def log(self) -> str:
        return os.path.join(self.directory, "toband.log")

    @property
    def config_text(self) -> str:
        return _CONFIG.format(directory=self.directory, log=self.log)


def service_place(environ: Mapping[str, str] = os.environ) -> ServicePlace:
    return ServicePlace(directory=os.path.join(environ.get("PROGRAMDATA", r"C:\ProgramData"), "Toban"))


def service_sid(name: str = SERVICE) -> str:
    """The identity of the service, which Windows derives from its name: only its processes have it."""
    digest = hashlib.sha1(name.upper().encode("utf-16-le"), usedforsecurity=False).digest()
    return "S-1-5-80-" + "-".join(str(part) for part in struct.unpack("<5I", digest))


def close_to_others(directory: str) -> None:
    """Leaves a directory to the service, the system and the administrators. Raises Failure."""
    grants = [
        part for who in (_SYSTEM, _ADMINISTRATORS, f"*{service_sid()}") for part in ("/grant:r", f"{who}:(OI)(CI)F")
    ]
    command = ["icacls", directory, "/inheritance:r", *grants, "/q"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Failure(f"cannot close {directory} to other users: icacls: {said or done.returncode}", Exit.INTERNAL)
