"""Lists the Windows programs that still run in a wine prefix, except wine's own: wine_leftovers.py PREFIX."""

from __future__ import annotations

import contextlib
import os
import sys
import time

PATIENCE = 5.0
OWN = "C:\\windows\\"


def running(prefix: str) -> list[str]:
    wanted = f"WINEPREFIX={prefix}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().rstrip(b"\0").decode(errors="replace").replace("\0", " ")
            # Windows programs have a drive in their path.
            if command[1:3] == ":\\" and not command.startswith(OWN):
                found.append(f"{name} {command[:200]}")
    return found


if __name__ == "__main__":
    deadline = time.monotonic() + PATIENCE
    while (left := running(sys.argv[1])) and time.monotonic() < deadline:
        time.sleep(0.1)
    print("\n".join(left), end="")
