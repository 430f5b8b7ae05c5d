"""Watches directories and whole trees with inotify.

`watchfiles` is not used for this on Linux: it walks a tree while it holds the interpreter lock, for seconds with a
hundred thousand directories, follows links inside the tree, and starts over whenever the set of paths changes.
"""

from __future__ import annotations

import sys

if sys.platform != "linux":
    raise ImportError("inotify exists on Linux only")

import contextlib
import ctypes
import errno
import os
import select
import struct
import threading
import time
from collections.abc import Mapping, Sequence, Set

from toband.file_watch.notifier import NotificationKind, Told
from toband.file_watch.own_files import NO_FILES, OwnFiles
from toband.file_watch.path_state import Spot

PORTION = 0.002
"""Seconds of work on a large tree between pauses of the same length."""
READ = 64 * 1024
READS_MOST = 16
"""Reads of notifications before the follower gets a turn."""
DENIED_MOST = 1000
"""Directories without permission that are tried again."""

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _Q_OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000
_CONTENT = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_MASK = _CONTENT | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _DONT_FOLLOW
_EVENT = struct.Struct("iIII")
_VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Implements `Notifier`. Walks trees in portions, between notifications."""

    def __init__(self, own: OwnFiles = NO_FILES) -> None:
        """Trees of `own` inside a wanted tree are not watched."""
        self._own = own
        self._fd = -1
        self._wakes, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # `wake` runs in another thread: the descriptor of a closed pipe may be reused.
        self._closing = threading.Lock()
        self._spots: frozenset[Spot] = frozenset()
        self._trees: frozenset[str] = frozenset()
        self._flat: frozenset[str] = frozenset()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        # Directories to watch, last first, and how to report their entries, if at all.
        self._todo: list[tuple[str, NotificationKind | None]] = []
        self._full = False
        self._denied: dict[str, NotificationKind | None] = {}
        self._troubles: dict[str, str] = {}

    @property
    def troubles(self) -> Mapping[str, str]:
        return self._troubles

    @property
    def busy(self) -> bool:
        return bool(self._todo) and not self._full

    @property
    def watched(self) -> Set[str]:
        return self._watches.keys()

    def want(self, spots: Set[Spot], fresh: Set[Spot]) -> None:
        new, gone = spots - self._spots, self._spots - spots
        self._spots = frozenset(spots)
        self._trees = frozenset(spot.path for spot in spots if spot.tree)
        self._flat = frozenset(spot.path for spot in spots if not spot.tree)
        replaced = {spot.path for spot in new}
        for spot in gone:
            self._forget(spot.path, only_unwanted=spot.path not in replaced)
        if gone:
            self._todo = [each for each in self._todo if self._wanted(each[0])]
            self._denied = {path: told for path, told in self._denied.items() if self._wanted(path)}
            self._troubles = {path: text for path, text in self._troubles.items() if self._wanted(path)}
        # A directory that disappeared and came back is the same spot, but not watched any more.
        waiting = {path for path, _ in self._todo}.union(self._denied)
        lost = {spot for spot in spots if spot.path not in self._watches}
        new = new | {spot for spot in lost if spot.path not in waiting}
        for spot in sorted(new, key=lambda spot: (not spot.tree, spot.path)):
            self._todo.append((spot.path, NotificationKind.ADDED if spot in fresh else None))

    def _wanted(self, path: str) -> bool:
        return path in self._flat or self._in_tree(path)

    def _in_tree(self, path: str) -> bool:
        while path not in self._trees:
            above = os.path.dirname(path)
            if above == path or path in self._own.trees:
                return False
            path = above
        return True

    def wait(self, timeout: float) -> Sequence[Told]:
        told: list[Told] = []
        if self.busy:
            self._work(told)
            timeout = 0.0 if told else PORTION
        files = [self._wakes] if self._fd < 0 else [self._wakes, self._fd]
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        for file, _ in poll.poll(timeout * 1000):
            if file == self._wakes:
                os.read(self._wakes, 4096)
            else:
                self._read(told)
        return told

    def _work(self, told: list[Told]) -> None:
        until = time.monotonic() + PORTION
        while self._todo and not self._full and time.monotonic() < until:
            path, report = self._todo.pop()
            self._watch(path, report, told)

    def wake(self) -> None:
        # A full pipe wakes as well; a closed one has no reader.
        with self._closing, contextlib.suppress(OSError):
            os.write(self._waker, b"x")

    def try_again(self) -> None:
        self._full = False
        self._troubles.clear()
        self._todo += self._denied.items()
        self._denied.clear()

    def close(self) -> None:
        with self._closing:
            for file in (self._fd, self._wakes, self._waker):
                if file >= 0:
                    os.close(file)
            self._fd = self._wakes = self._waker = -1

    # -- watching

    def _watch(self, path: str, report: NotificationKind | None, told: list[Told]) -> None:
        """Watches a directory, then lists it: later entries are notified, earlier ones are found."""
        if not self._wanted(path):
            return
        failed = self._add(path)
        if not failed and self._in_tree(path):
            failed = self._look_into(path, report, told)
        if failed in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            # The rest waits for `try_again`.
            self._todo.append((path, report))
            self._full = True
            self._troubles[path] = _why(failed)
        elif failed and failed not in _VANISHED:
            self._troubles[path] = _why(failed)
            if len(self._denied) < DENIED_MOST:
                self._denied[path] = report

    def _add(self, path: str) -> int:
        """0, or the number of the error."""
        if self._fd < 0:
            self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._fd < 0:
                return ctypes.get_errno()
        watch = _libc.inotify_add_watch(self._fd, os.fsencode(path), _MASK)
        if watch < 0:
            return ctypes.get_errno()
        before = self._watches.get(path)
        if before is not None and before != watch:
            self._remove(path)  # the former directory has moved
        elsewhere = self._paths.get(watch)
        if elsewhere is not None and elsewhere != path:
            del self._watches[elsewhere]
        self._paths[watch] = path
        self._watches[path] = watch
        return 0

    def _look_into(self, path: str, report: NotificationKind | None, told: list[Told]) -> int:
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if report is not None:
                        told.append((entry.path, report))
                    if entry.is_dir(follow_symlinks=False):
                        self._todo.append((entry.path, report))
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def _forget(self, path: str, *, only_unwanted: bool = False) -> None:
        """Stops watching a directory and everything below it."""
        below = path.rstrip(os.sep) + os.sep
        for each in [each for each in self._watches if each == path or each.startswith(below)]:
            if not (only_unwanted and self._wanted(each)):
                self._remove(each)

    def _remove(self, path: str) -> None:
        watch = self._watches.pop(path)
        del self._paths[watch]
        _libc.inotify_rm_watch(self._fd, watch)  # fails if the kernel removed the watch itself

    # -- notifications

    def _read(self, told: list[Told]) -> None:
        for _ in range(READS_MOST):
            try:
                data = os.read(self._fd, READ)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size
                name = data[place : place + length].rstrip(b"\0")
                place += length
                self._take(watch, mask, os.fsdecode(name), told)

    def _take(self, watch: int, mask: int, name: str, told: list[Told]) -> None:
        if mask & _Q_OVERFLOW:
            told.append(("", NotificationKind.LOST))
            # There may be new directories without a notification.
            self._todo += ((path, None) for path in self._trees)
            return
        directory = self._paths.get(watch)
        if directory is None:
            return
        if not name:
            if mask & (_DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED):
                self._forget(directory) if mask & _MOVE_SELF else self._drop(watch)
                told.append((directory, NotificationKind.GONE))
            return
        path = os.path.join(directory, name)
        if mask & (_CREATE | _MOVED_TO):
            kind = NotificationKind.MOVED if mask & _MOVED_TO else NotificationKind.ADDED
            told.append((path, kind))
            if mask & _ISDIR and self._in_tree(path):
                self._todo.append((path, kind))
        elif mask & (_DELETE | _MOVED_FROM):
            told.append((path, NotificationKind.DELETED))
            if mask & _ISDIR and path in self._watches:
                self._forget(path)
        elif mask & (_MODIFY | _ATTRIB):
            told.append((path, NotificationKind.MODIFIED))

    def _drop(self, watch: int) -> None:
        """Drops a watch that the kernel removes itself."""
        del self._watches[self._paths.pop(watch)]


def _why(number: int) -> str:
    match number:
        case errno.ENOSPC:
            return (
                "the limit of watched directories for this user is reached; "
                f"raise fs.inotify.max_user_watches{_now('max_user_watches')}"
            )
        case errno.EMFILE:
            return (
                "the limit of inotify instances for this user, or of the daemon's descriptors, is reached; "
                f"raise fs.inotify.max_user_instances{_now('max_user_instances')}"
            )
        case errno.EACCES | errno.EPERM:
            return f"{os.strerror(number)}; let the daemon's user read it and enter it"
        case _:
            return os.strerror(number)


def _now(limit: str) -> str:
    try:
        with open(f"/proc/sys/fs/inotify/{limit}", encoding="ascii") as file:
            return f" (it is {file.read().strip()})"
    except OSError:
        return ""
