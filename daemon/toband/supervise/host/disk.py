"""The file systems with the daemon's state: free space, write checks, and a ballast file for when they are full."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
from collections.abc import Sequence

from toband import failpoints
from toband.ports import Space

LOG_AHEAD = 1024 * 1024
"""Bytes allocated ahead in the database's log, for commits."""
BALLAST_MOST = 16 * 1024 * 1024
BALLAST_SHARE = 0.02
PIECES = 16
PIECE_LEAST = 64 * 1024
_BLOCK = 4096
_PIECE = bytes(1024 * 1024)
PROBE = ".probe"


def space_of(path: str) -> Space:
    """Raises OSError."""
    if sys.platform == "win32":
        found = shutil.disk_usage(path)
        return Space(path=path, total=found.total, free=found.free)
    stat = os.statvfs(path)
    return Space(
        path=path,
        total=stat.f_blocks * stat.f_frsize,
        free=stat.f_bavail * stat.f_frsize,
        # Some file systems create inodes on demand, and count none.
        inodes=stat.f_files or None,
        free_inodes=stat.f_favail if stat.f_files else None,
    )


class Ballast:
    """A file of really allocated blocks, released when the disk is full."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self._lock = threading.Lock()

    def held(self) -> int:
        """Its current size."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def shed(self, size: int) -> bool:
        """Shrinks it to at most `size`; returns whether space was released. A failing file system releases nothing."""
        with self._lock:
            if self.held() <= size:
                return False  # nothing to release, or another process was faster
            try:
                # Not unlinked: that needs a write to the directory, and creating it again needs an inode.
                os.truncate(self.path, size)
            except OSError:
                return False
            return True

    def shed_piece(self) -> bool:
        """Releases enough for a commit."""
        piece = max(self.size // PIECES, PIECE_LEAST)
        return self.shed(max(0, self.held() - piece))

    def take(self) -> None:
        """Restores its full size. Raises OSError, and then it is unchanged."""
        with self._lock:
            before = self.held()
            if before == self.size:
                return
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            fd = os.open(self.path, flags, 0o600)
            try:
                _allocate(fd, before, self.size)
            except OSError:
                os.ftruncate(fd, before)
                raise
            finally:
                os.close(fd)


def _allocate(fd: int, start: int, size: int) -> None:
    """Allocates blocks for the whole file, not only a length."""
    if size < start:
        os.ftruncate(fd, size)
    elif sys.platform != "win32":
        os.posix_fallocate(fd, 0, size)
    else:
        os.lseek(fd, start, os.SEEK_SET)
        while start < size:
            start += os.write(fd, _PIECE[: size - start])


class StateDisk:
    """Implements `ports.Disk` for a state directory and, if it is on another file system, a database file.

    Raises OSError for a missing state directory.
    """

    def __init__(self, state_dir: str, database_file: str = "") -> None:
        self._state_dir = state_dir
        self._database_file = database_file
        places = [(state_dir, os.path.join(state_dir, "ballast"))]
        if database_file:
            directory = _existing(os.path.dirname(database_file))
            if _device(directory) != _device(state_dir):
                places.append((directory, f"{database_file}-ballast"))
        self._paths = [path for path, _ in places]
        self._ballasts = [Ballast(file, _ballast_size(path)) for path, file in places]
        self._probe = os.path.join(state_dir, PROBE)

    def spaces(self) -> Sequence[Space]:
        return [space_of(path) for path in self._paths]

    def try_write(self) -> None:
        failpoints.hit("disk.probe")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        fd = os.open(self._probe, flags, 0o600)
        try:
            if os.write(fd, bytes(_BLOCK)) != _BLOCK:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._probe)
            os.fsync(fd)
        finally:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(self._probe)

    @property
    def ballast(self) -> int:
        return sum(ballast.size for ballast in self._ballasts)

    def ballast_held(self) -> int:
        return sum(min(ballast.held(), ballast.size) for ballast in self._ballasts)

    def shed_half(self) -> bool:
        shed = [ballast.shed(ballast.size // 2) for ballast in self._ballasts]
        return any(shed)

    def shed_piece(self) -> bool:
        shed = [ballast.shed_piece() for ballast in self._ballasts]
        return any(shed)

    def take_ballast(self) -> None:
        for ballast in self._ballasts:
            ballast.take()

    def reach_ahead(self) -> None:
        # Never the database itself: closing a descriptor of it releases every lock that SQLite has on it.
        if self._database_file and sys.platform == "linux":
            _reach_ahead(f"{self._database_file}-wal", LOG_AHEAD)


if sys.platform == "linux":
    import ctypes

    _KEEP_SIZE = 1
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

    def _reach_ahead(path: str, size: int) -> None:
        """Allocates space after the end of a file, without changing its length, if less than half of it is left."""
        try:
            facts = os.stat(path)
            if facts.st_blocks * 512 - facts.st_size >= size // 2:
                return
            # Not created when it is missing: only the database may create it.
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            _libc.fallocate(fd, _KEEP_SIZE, facts.st_size, size)
        finally:
            os.close(fd)


def _ballast_size(path: str) -> int:
    """Raises OSError."""
    share = int(space_of(path).total * BALLAST_SHARE)
    return min(BALLAST_MOST, share) // _BLOCK * _BLOCK


def _existing(path: str) -> str:
    """The nearest existing directory: anything created below it is on the same file system."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _device(path: str) -> int:
    """Raises OSError."""
    return os.stat(path).st_dev
