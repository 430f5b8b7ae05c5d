"""Steps that behave, and steps that do not. Each is an argument vector of a real program.

Hostile ones carry the marker they are given, so that whatever is left of them can be found.
"""

from __future__ import annotations

import sys


def shell(script: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", script, "step", *arguments]


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script, *arguments]


def background(ready: str) -> str:
    """Shell text: starts a program that lasts, in the background, and says when it really is that program's turn.

    A shell's own child would still have the shell's traps for a moment, and lose a signal that comes too early.
    """
    return f"sh -c ': > {ready}; exec sleep 600' &"


def lurker_argv(seconds: str) -> list[str]:
    """The program of the daemonised grandchild; another process with the same arguments is a bystander."""
    return ["/bin/sleep", seconds]


DAEMONISING = """
import os, signal, sys
pid_file, lurker = sys.argv[1], sys.argv[2:]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.chdir("/")
        with open(pid_file + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(pid_file + ".new", pid_file)
        os.closerange(0, 1024)
        os.execve(lurker[0], lurker, {})
    os._exit(0)
os.wait()
while True:
    signal.pause()
"""
"""Leaves a grandchild in a session of its own: no descriptors, no environment, deaf to TERM, in /."""

HOPPING = """
import os, signal, sys
ready, hops = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    count = 0
    while True:
        if os.fork():
            os._exit(0)
        count += 1
        if count == hops:
            open(ready, "w").close()
while True:
    signal.pause()
"""
"""A process that is never the same one for longer than a fork takes. `ready` appears after so many hops."""

STORMING = """
import os, signal, sys, time
ready, most = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
living = forked = 0
while True:
    if os.fork() == 0:
        child = os.fork()
        time.sleep(0.02)
        if child:
            os.wait()
        os._exit(0)
    living += 1
    forked += 1
    if forked == 2 * most:
        open(ready, "w").close()
    while living and os.waitpid(-1, os.WNOHANG if living < most else 0)[0]:
        living -= 1
"""
"""Forks children that fork children, without end, at most twice `most` of them alive at a time."""

PRINTING = """
import os, random, sys
chooser = random.Random(sys.argv[1])
for _ in range(int(sys.argv[2])):
    fd = chooser.choice((1, 2))
    data = chooser.randbytes(chooser.randrange(1, 5000))
    while data:
        data = data[os.write(fd, data):]
"""
"""Writes random bytes to both streams in turns; `printed_by` says what they are."""


def printed_by(seed: str, writes: int) -> tuple[bytes, bytes]:
    """What PRINTING writes to stdout and to stderr."""
    import random

    chooser = random.Random(seed)
    streams = {1: bytearray(), 2: bytearray()}
    for _ in range(writes):
        fd = chooser.choice((1, 2))
        streams[fd] += chooser.randbytes(chooser.randrange(1, 5000))
    return bytes(streams[1]), bytes(streams[2])
