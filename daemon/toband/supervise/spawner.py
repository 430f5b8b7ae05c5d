"""The spawner: a tiny process that forks shims, so that the daemon never has to fork itself.

It is told what to start over a socket of packets: a JSON head naming the token, and one descriptor with the bootstrap
message, which only the shim reads. It answers with the shim's pid and a pidfd of it. It is a subreaper: a child of it
that is not a shim is an orphan of a shim that was killed, and is ended. When the daemon goes away it takes no new work,
keeps guarding, and exits with its last child.

Standard library only.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the spawner needs fork")

import contextlib
import gc
import json
import os
import select
import signal
import socket
import time

from toband import failpoints
from toband.supervise import shim, tree

MOST_BYTES = 4096
ORPHAN_PATIENCE = 2.0
"""How long new work may wait while what a killed shim left is ended."""


class Spawner:
    """Forks a shim per request and guards what they leave."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_write, False)
        self._shims: dict[int, str] = {}
        self._ended: list[tuple[str, int]] = []
        self._connected = True

    def run(self) -> None:
        for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, shim.note_signal)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        tree.become_subreaper()
        gc.collect()
        gc.freeze()
        gc.disable()
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while self._connected or self._shims:
            for fd, _ in poll.poll():
                if fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._guard()
                elif not self._serve():
                    poll.unregister(self._sock)
                    self._sock.close()
                    self._connected = False

    def _serve(self) -> bool:
        """Handles one request. False: the daemon is gone."""
        try:
            head, fds, _, _ = socket.recv_fds(self._sock, MOST_BYTES, 1)
        except ConnectionError:
            return False
        if not head:
            return False
        token = json.loads(head)["token"]
        failpoints.hit("spawner.received")
        try:
            self._fork(token, fds[0])
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, token: str, bootstrap: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            self._tell({"token": token, "error": f"cannot fork: {error.strerror}"})
            return
        if pid == 0:
            shim.got.clear()
            self._sock.close()
            os.close(self._wake)
            os.close(self._wake_write)
            shim.main(bootstrap)
        self._shims[pid] = token
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        # The child cannot be reaped, and so its pid not be reused, before _guard runs.
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self._tell({"token": token, "pid": pid, "error": f"no pidfd: {error.strerror}"})
            return
        try:
            self._tell({"token": token, "pid": pid}, pidfd)
        finally:
            os.close(pidfd)

    def _guard(self) -> None:
        """Reaps what has ended, ends what a killed shim left, and then reports that shim as gone."""
        tree.reap(self._took_up)
        orphans, left = self._end_orphans()
        # Only now: others may have died meanwhile, and what they left was ended with the rest.
        broken = [(token, code) for token, code in self._ended if code != shim.EXIT_DONE]
        self._ended.clear()
        for token, code in broken:
            self._tell({"token": token, "gone": code, "orphans": orphans, "left": left})

    def _end_orphans(self) -> tuple[int, int]:
        """Ends every child that is not a shim; how many there were, and how many would not go."""
        seen: set[tree.Target] = set()
        deadline = time.monotonic() + ORPHAN_PATIENCE
        pause = 0.0
        while left := tree.descendants(skip=self._shims):
            seen.update(left)
            for target in left:
                tree.send(target, signal.SIGKILL)
            tree.reap(self._took_up)
            if time.monotonic() > deadline:
                break
            time.sleep(pause)
            pause = min(0.02, pause + 0.001)
        return len(seen), len(left)

    def _took_up(self, pid: int, status: int) -> None:
        token = self._shims.pop(pid, None)
        if token is not None:
            self._ended.append((token, os.waitstatus_to_exitcode(status)))

    def _tell(self, message: dict[str, object], *fds: int) -> None:
        if self._connected:
            with contextlib.suppress(OSError):
                socket.send_fds(self._sock, [json.dumps(message).encode()], list(fds))


def main(fd: int) -> None:
    Spawner(socket.socket(fileno=fd)).run()
