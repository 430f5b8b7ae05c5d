"""Writing an attempt file: taking the claim, appending frames, closing with the end record.

The claim is the file itself. It is prepared under another name, locked, and then linked to its own: whoever links first
owns the attempt, and a claim that can be seen is complete and locked by a living owner, or its owner is dead.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("attempt files are written by the POSIX shim")

import _thread
import contextlib
import ctypes
import errno
import fcntl
import os
import time
from typing import Any

from toband import failpoints
from toband.supervise import frames

RESERVE = 8 * 1024
"""Kept allocated ahead of the log, so that a full disk cannot lose the end record."""
_FIRST_STRIDE = 16 * 1024
_STRIDE = 1024 * 1024
_KEEP_SIZE = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def now_us() -> int:
    return time.time_ns() // 1000


def claim(directory: str, name: str, facts: dict[str, Any]) -> int | None:
    """Takes the claim `directory/name` and makes it durable; the descriptor holds its lock. None: somebody has it.

    Raises OSError, and then the claim may or may not be there.
    """
    frame = frames.encode_json(frames.CLAIM, now_us(), facts)
    # Not O_APPEND: a short write is truncated away and written again at the same place.
    dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # The daemon claims in threads: a thread's id is its own among all processes.
    own = f".{name}.{_thread.get_native_id()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own, dir_fd=dir_fd)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(own, flags, 0o600, dir_fd=dir_fd)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.write(fd, frame) != len(frame):
                    raise OSError(errno.ENOSPC, "cannot write the claim")
                os.link(own, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            finally:
                os.unlink(own, dir_fd=dir_fd)
            failpoints.hit("claim.linked")
            os.fsync(fd)
            os.fsync(dir_fd)
        except FileExistsError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(dir_fd)


class AttemptFile:
    """Appends to a claimed file. Every frame is whole on disk or not there; what does not fit is counted."""

    __slots__ = ("_allocated", "_fd", "_gap", "_offset", "_preallocate", "dropped", "written")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._offset = os.fstat(fd).st_size
        self._allocated = self._offset
        self._preallocate = True
        self._gap = 0
        self.dropped = 0
        self.written = {frames.STDOUT: 0, frames.STDERR: 0}
        self._extend(_FIRST_STRIDE)

    def append(self, kind: int, payload: bytes) -> None:
        """Adds what a stream printed. A disk that will not take it never stops the step: the bytes are counted."""
        if self._offset + len(payload) + frames.HEADER.size + RESERVE > self._allocated:
            stride = _STRIDE if self._allocated > _STRIDE // 4 else _FIRST_STRIDE * 4
            if not self._extend(stride + len(payload)):
                self._drop(payload)
                return
        if self._gap:
            self._note_gap()
        if self._write(frames.header(kind, now_us(), payload), payload):
            self.written[kind] = self.written.get(kind, 0) + len(payload)
        else:
            self._drop(payload)

    def started(self, facts: dict[str, Any]) -> None:
        self._write(frames.encode_json(frames.STARTED, now_us(), facts), b"")

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the end record, gives back what was allocated ahead, and makes all of it durable. Raises OSError."""
        if self._gap:
            self._note_gap()
        failpoints.hit("end.before")
        if not self._write(frames.encode_end(now_us(), record), b""):
            raise OSError(errno.ENOSPC, "cannot write the end record")
        if self._allocated > self._offset:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._offset)
        failpoints.hit("end.written")
        os.fsync(self._fd)
        failpoints.hit("end.durable")

    def _drop(self, payload: bytes) -> None:
        self._gap += len(payload)
        self.dropped += len(payload)

    def _note_gap(self) -> None:
        text = f"{self._gap} bytes of output were dropped here: the disk would not take them"
        if self._write(frames.encode(frames.NOTE, now_us(), text.encode()), b""):
            self._gap = 0

    def _write(self, head: bytes, payload: bytes) -> bool:
        size = len(head) + len(payload)
        try:
            failpoints.hit("log.write")
            written = os.pwritev(self._fd, [head, payload], self._offset)
            if written == size:
                self._offset += size
                return True
            data = head + payload
            while written < size:
                written += os.pwrite(self._fd, data[written:], self._offset + written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._offset)
            self._allocated = self._offset
            return False
        self._offset += size
        return True

    def _extend(self, size: int) -> bool:
        """Allocates that much more ahead. False only when the disk is full."""
        if not self._preallocate:
            return True
        start = max(self._allocated, self._offset)
        if _libc.fallocate(self._fd, _KEEP_SIZE, start, size) == 0:
            self._allocated = start + size
            return True
        if ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT):
            return False
        self._preallocate = False
        self._allocated = 1 << 62
        return True
