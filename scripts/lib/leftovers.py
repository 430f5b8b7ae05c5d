"""Lists and kills processes that tests left behind: leftovers.py DIRECTORY. Exits 1 if there were any.

A process belongs to the tests if its working directory or an open file is below the directory, or an argument where the
others cannot be seen. Processes that are about to exit get a few seconds.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise SystemExit("leftovers: needs /proc")

import contextlib
import os
import signal
import time

PATIENCE = 5.0


def main(directory: str) -> int:
    deadline = time.monotonic() + PATIENCE
    while (found := _below(os.path.realpath(directory))) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid, command in found.items():
        print(f"test: the tests left a process behind: {pid} {command[:200]}", file=sys.stderr)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return 1 if found else 0


def _below(directory: str) -> dict[int, str]:
    if not os.path.isdir("/proc/self/fd"):
        return {}
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if any(_is_below(link, directory) for link in _links(name)):
                    found[int(name)] = _command(name)
    return found


def _links(pid: str) -> list[str]:
    try:
        links = [os.readlink(f"/proc/{pid}/cwd")]
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except PermissionError:
        # A daemon is not dumpable: its arguments are all that other users than root see.
        return _command(pid).split()
    return links


def _is_below(link: str, directory: str) -> bool:
    path = link.removesuffix(" (deleted)")
    return path == directory or path.startswith(f"{directory}/")


def _command(pid: str) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").split("\0")
    return " ".join(words).strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
