"""The daemon's side of the spawner: keeps one alive, and shims parked, forked ahead of their use."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the spawner needs fork")

import asyncio
import contextlib
import os
import socket
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import structlog

import toband
from toband.supervise.launch.descriptor_limit import restore_limit_of
from toband.supervise.shim import private_memory, privileges

PARKED = 2
"""Spare shims for the next attempts."""
TRIES = 3
PAUSE = 1.0
LOG_MOST = 1024 * 1024
"""Bytes of the spawner's log, beyond which the next spawner begins a new one."""
"""Before what failed is tried again: another shim, or another spawner when several have died in a row."""
_PACKAGES = os.path.dirname(toband.__path__[0])
_PASSED_ON = ("TOBAN_FAILPOINTS_SPAWNER", "TOBAN_BOOT_ID", "PATH", "LANG")

log = structlog.get_logger()


@dataclass(slots=True)
class Parked:
    """A shim that waits for its one bootstrap message on `sock`."""

    pid: int
    pidfd: int
    sock: socket.socket

    def discard(self) -> None:
        """Closing the socket before handing it work makes the shim exit."""
        os.close(self.pidfd)
        self.sock.close()


class PoolOwner(Protocol):
    """The user of the pool. Called in the event loop."""

    def shim_parked(self) -> None: ...

    def shim_gone(self, pid: int, orphans: int, left: int) -> None:
        """A shim failed; `orphans` of its processes were ended, `left` could not be."""
        ...

    def no_shim(self, reason: str) -> None:
        """There can be none at the moment; it is tried again every second."""
        ...

    def spawner_died(self) -> None:
        """Its shims go on, but their orphans are no longer reported."""
        ...


class ShimPool:
    def __init__(self, owner: PoolOwner, spawner_log: str) -> None:
        self._owner = owner
        self._spawner_log = spawner_log
        self._parked: deque[Parked] = deque()
        self._asked = 0
        self._wanted = 0
        self._sock: socket.socket | None = None
        self._spawner: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._replacing: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def open(self) -> None:
        """A spawner that cannot be started is tried again, as after its death."""
        self._loop = asyncio.get_running_loop()
        try:
            self._start()
        except OSError as error:
            self._not_started(error)
            self._replacing = self._loop.create_task(self._replace())

    async def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.gather(self._replacing, return_exceptions=True)
        self._drop()

    @property
    def alive(self) -> bool:
        return self._sock is not None

    @property
    def short(self) -> bool:
        """Whether a shim could not be had a moment ago."""
        return self._again is not None

    @property
    def spawner_pid(self) -> int:
        return self._spawner.pid if self._spawner else 0

    def take(self) -> Parked | None:
        return self._parked.popleft() if self._parked else None

    def give_back(self, parked: Parked) -> None:
        """Returns a shim that was taken and not used."""
        self._parked.appendleft(parked)

    def want(self, count: int) -> None:
        """Asks for as many shims as `count` attempts will need, and some more to be ready for the next."""
        self._wanted = count
        if self._again is not None:
            return
        while self._sock is not None and self._asked + len(self._parked) < count + PARKED:
            try:
                self._sock.send(b"park")
            except BlockingIOError:
                return  # enough requests are pending: the answers continue here
            except OSError:
                self._died()
                return
            self._asked += 1

    def _ask_again(self) -> None:
        self._again = None
        self.want(self._wanted)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        call = f"spawner.main({theirs.fileno()}, {private_memory.limit_for_steps()})"
        program = f"import sys; sys.path.append({_PACKAGES!r}); from toband.supervise.shim import spawner; {call}"
        environment = {key: value for key, value in os.environ.items() if key in _PASSED_ON}
        environment["TOBAN_FAILPOINTS"] = environment.pop("TOBAN_FAILPOINTS_SPAWNER", "")
        try:
            with theirs, self._open_log() as errors, privileges.passed_on():
                # Not asyncio's subprocess: that one is KILLed when its transport is thrown away.
                self._spawner = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", program],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env=environment,
                    cwd="/",
                )
        except OSError:
            ours.close()
            raise
        # Before the first shim: steps start with the limit that the daemon was started with.
        restore_limit_of(self._spawner.pid)
        self._sock = ours
        self._loop.add_reader(ours, self._receive)
        log.info("spawner started", action="spawner_started", pid=self._spawner.pid)
        self.want(self._wanted)

    def _open_log(self) -> BinaryIO:
        with contextlib.suppress(OSError):
            if os.stat(self._spawner_log).st_size > LOG_MOST:
                os.replace(self._spawner_log, f"{self._spawner_log}.1")
        return open(self._spawner_log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))

    def _drop(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._sock = None
        while self._parked:
            self._parked.popleft().discard()
        self._asked = 0
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._spawner is not None:
            # It ends with its last shim, whenever that is, and is taken up if this process still lives then.
            threading.Thread(target=self._spawner.wait, daemon=True).start()
            self._spawner = None

    def _receive(self) -> None:
        for _ in range(64):
            if self._sock is None:
                return
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, 4096, 2)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._died()
                return
            self._told(data.decode(), fds)

    def _told(self, message: str, fds: list[int]) -> None:
        """`parked PID` with a pidfd and a socket, `gone PID ORPHANS LEFT`, or `error REASON`."""
        kind, _, rest = message.partition(" ")
        if kind == "gone":
            pid, orphans, left = map(int, rest.split())
            self._owner.shim_gone(pid, orphans, left)
            return
        self._asked -= 1
        if len(fds) == 2:
            self._failures = 0
            # With explicit arguments Python makes no extra system calls.
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=fds[1])
            self._parked.append(Parked(int(rest), fds[0], sock))
            self._owner.shim_parked()
        else:
            for fd in fds:
                os.close(fd)
            if self._again is None:
                self._again = self._loop.call_later(PAUSE, self._ask_again)
            self._owner.no_shim(rest if kind == "error" else "no descriptors are left")

    def _died(self) -> None:
        log.error("the spawner died", action="spawner_died", pid=self.spawner_pid)
        self._failures += 1
        self._drop()
        self._owner.spawner_died()
        if self._replacing is None:
            self._replacing = self._loop.create_task(self._replace())

    async def _replace(self) -> None:
        while self._sock is None:
            if self._failures >= TRIES:
                self._owner.no_shim("the spawner dies again and again")
                await asyncio.sleep(PAUSE)
            try:
                self._start()
            except OSError as error:
                self._not_started(error)
        self._replacing = None

    def _not_started(self, error: OSError) -> None:
        self._failures += 1
        log.error("cannot start the spawner", action="spawner_failed", error=str(error))
        self._owner.no_shim(f"cannot start the spawner: {error.strerror or error}")
