"""The spawner: a tiny process that forks shims, so that the daemon never forks.

The daemon asks it over a packet socket for parked shims, forked ahead of their use, so that no step waits for a fork.
It answers with the shim's pid, its pidfd, and a socket on which the daemon hands that shim its one bootstrap message.
It is a subreaper: a child that is not a shim is an orphan of a killed shim, and the spawner ends it. When the daemon
disconnects, it takes no new work, keeps ending orphans, and exits with its last child; parked shims exit then.

Standard library only.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the spawner needs fork")

import contextlib
import gc
import os
import select
import signal
import socket
import time

from toband import failpoints
from toband.supervise.shim import parked_shim, private_memory, privileges, process_title, process_tree, shim

MOST_BYTES = 4096
ORPHAN_PATIENCE = 2.0
"""How long new work may wait while what a killed shim left is ended."""


class Spawner:
    """Parks a shim per request and guards what shims leave."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_write, False)
        self._shims: set[int] = set()
        self._ended: list[tuple[int, int]] = []
        self._undying: set[process_tree.Target] = set()
        self._connected = True
        self._boot_id = process_tree.boot_id()

    def run(self) -> None:
        # Steps of the same user can signal this process and the shims, which inherit it: nothing but KILL ends them.
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_IGN)
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(signum, shim.note_signal)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # Shims may get a signal before they run for the first time; they unblock it when they are ready.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        process_tree.become_subreaper()
        # Found out once, before any fork.
        privileges.separates_users()
        privileges.keep_from_children()
        process_title.reserve()
        process_title.set_title("spawner")
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
            request = self._sock.recv(MOST_BYTES)
        except ConnectionError:
            return False
        if not request:
            return False
        failpoints.hit("spawner.asked")
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._tell(f"error no socket: {error.strerror}")
            return True
        with ours, theirs:
            self._fork(ours, theirs)
        return True

    def _fork(self, ours: socket.socket, theirs: socket.socket) -> None:
        """Parks one shim, and gives the daemon the end of the socket that reaches it."""
        try:
            failpoints.hit("spawner.fork")
            pid = os.fork()
        except OSError as error:
            self._tell(f"error cannot fork: {error.strerror}")
            return
        if pid == 0:
            shim.got.clear()
            self._sock.close()
            theirs.close()
            os.close(self._wake)
            os.close(self._wake_write)
            parked_shim.main(ours, self._boot_id)
        self._shims.add(pid)
        # The child cannot be reaped, and so its pid not be reused, before _guard runs.
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self._tell(f"error no pidfd: {error.strerror}")
            return
        try:
            self._tell(f"parked {pid}", pidfd, theirs.fileno())
        finally:
            os.close(pidfd)

    def _guard(self) -> None:
        """Reaps what has ended, ends what a killed shim left, and then reports that shim as gone."""
        process_tree.reap(self._took_up)
        orphans, left = self._end_orphans()
        # Only now: others may have died meanwhile, and their orphans were ended with the rest.
        broken = [pid for pid, code in self._ended if code != parked_shim.EXIT_DONE]
        self._ended.clear()
        for pid in broken:
            self._tell(f"gone {pid} {orphans} {left}")

    def _end_orphans(self) -> tuple[int, int]:
        """Ends every child that is not a shim; how many there were, and how many would not go."""
        seen: set[process_tree.Target] = set()
        deadline = time.monotonic() + ORPHAN_PATIENCE
        pause = 0.0
        while True:
            late = time.monotonic() > deadline
            found = set(process_tree.descendants(skip=self._shims))
            # Processes that did not end were waited for once and reported; they are not waited for again.
            self._undying &= found
            left = found - self._undying
            if not left:
                break
            seen |= left
            for target in left:
                process_tree.send(target, signal.SIGKILL)
            process_tree.reap(self._took_up)
            # By a look that was late itself: this process may have had no time, and those that it saw before are gone.
            if late:
                self._undying |= left
                break
            time.sleep(pause)
            pause = min(0.02, pause + 0.001)
        return len(seen), len(left)

    def _took_up(self, pid: int, status: int) -> None:
        if pid in self._shims:
            self._shims.discard(pid)
            self._ended.append((pid, os.waitstatus_to_exitcode(status)))

    def _tell(self, message: str, *fds: int) -> None:
        """Plain text: every page touched after a fork is copied, and a JSON encoder touches many."""
        if self._connected:
            with contextlib.suppress(OSError):
                socket.send_fds(self._sock, [message.encode()], list(fds))


def main(fd: int, core_limit: int) -> None:
    """`core_limit` is the soft limit of core dumps that steps start with."""
    private_memory.close_memory(core_limit)
    Spawner(socket.socket(fileno=fd)).run()
