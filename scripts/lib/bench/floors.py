"""The floors that need no daemon: the same work with nothing around it.

    floors.py spawn PROGRAM COUNT    starts and awaits a program again and again
    floors.py fill SOURCE TARGET     takes what `cat SOURCE` prints through a pipe into a file

Run as a script of its own by a bare interpreter, so that nothing the bench has loaded weighs on it. Prints the seconds
it took. Standard library only.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the floors need posix_spawn and pipes")

import contextlib
import fcntl
import os
import time

READ_SIZE = 256 * 1024
_F_SETPIPE_SZ = 1031


def spawn(program: str, count: int) -> float:
    environment = {"PATH": os.defpath}
    began = time.perf_counter()
    for _ in range(count):
        pid = os.posix_spawn(program, [program], environment)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise SystemExit(f"{program} failed: {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began


def fill(source: str, target: str) -> float:
    """Starts at a line on its input. Syncs at the end, which is not part of the time."""
    os.write(1, b"ready\n")
    os.read(0, 1)
    began = time.perf_counter()
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(read, _F_SETPIPE_SZ, READ_SIZE)
    pid = os.posix_spawnp("cat", ["cat", source], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    os.close(write)
    while data := os.read(read, READ_SIZE):
        while data:
            data = data[os.write(out, data) :]
    took = time.perf_counter() - began
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit(f"cannot read {source}")
    os.fsync(out)
    return took


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["spawn", program, count]:
            print(spawn(program, int(count)))
        case ["fill", source, target]:
            print(fill(source, target))
        case _:
            raise SystemExit(__doc__)
