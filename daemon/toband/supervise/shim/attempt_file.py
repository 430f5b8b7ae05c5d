"""Writing an attempt file: taking the claim, appending frames, closing with the end record.

The claim is the file itself. It is prepared under another name, locked, and then linked to its own: the first to link
owns the attempt. A visible claim is therefore complete, and locked as long as its owner lives.

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
from toband.supervise.shim import frames
from toband.supervise.shim.output_limit import OutputLimit

RESERVE = 8 * 1024
"""Kept allocated ahead of the log, so that a full disk cannot lose the end record."""
_FIRST_STRIDE = 16 * 1024
_STRIDE = 1024 * 1024
_KEEP_SIZE = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def now_us() -> int:
    return time.time_ns() // 1000


def claim(directory: str, name: str, facts: dict[str, Any], second: str = "") -> int | None:
    """Takes the claim durably; returns its locked descriptor, or None if another process has it.

    With a `second` name the claim is valid only under both. After OSError it may or may not exist.
    """
    frame = frames.encode_json(frames.CLAIM, now_us(), facts)
    # Not O_APPEND: a short write is truncated and written again at the same offset.
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
                if second:
                    _link_second(own, name, dir_fd, second)
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


def _link_second(own: str, name: str, dir_fd: int, second: str) -> None:
    """Raises OSError; then the first name is gone again."""
    try:
        try:
            os.link(own, second, src_dir_fd=dir_fd)
        except FileNotFoundError:
            # The directory was removed.
            os.makedirs(os.path.dirname(second), mode=0o700, exist_ok=True)
            os.link(own, second, src_dir_fd=dir_fd)
    except OSError:
        os.unlink(name, dir_fd=dir_fd)
        raise


class AttemptFile:
    """Appends to a claimed file. Every frame is complete on disk or absent; `limit` and `full` are of OutputLimit."""

    __slots__ = (
        "_allocated",
        "_fd",
        "_limit",
        "_offset",
        "_preallocate",
        "written",
    )

    def __init__(self, fd: int, limit: int | None = None, full: str = "") -> None:
        self._fd = fd
        self._offset = os.fstat(fd).st_size
        self._allocated = self._offset
        self._preallocate = True
        self._limit = OutputLimit(limit, full)
        self.written = {frames.STDOUT: 0, frames.STDERR: 0}
        self._extend(_FIRST_STRIDE)

    @property
    def dropped(self) -> int:
        return self._limit.dropped

    def append(self, kind: int, payload: bytes) -> None:
        """Adds what a stream printed. A disk that will not take it never stops the step: the bytes are counted."""
        fits = self._limit.within(payload)
        if fits:
            self._append(kind, fits)
        self._limit.drop_beyond(len(payload) - len(fits))

    def _append(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        short = self._offset + size + frames.HEADER.size + RESERVE > self._allocated
        if (short or self._limit.has_gaps) and self._limit.drop_if_all_full(size):
            return
        if short:
            stride = _STRIDE if self._allocated > _STRIDE // 4 else _FIRST_STRIDE * 4
            if not self._extend(stride + size):
                self._limit.drop_refused(size)
                return
        if self._limit.has_gaps:
            self._note_gaps()
        if self._write(frames.header(kind, now_us(), payload), payload):
            self.written[kind] = self.written.get(kind, 0) + size
            self._limit.stored(size)
        else:
            self._limit.drop_refused(size)

    def started(self, facts: dict[str, Any]) -> None:
        self._write(frames.encode_json(frames.STARTED, now_us(), facts), b"")

    def note(self, text: str) -> None:
        """Writes a note into the log; on a full disk it is dropped."""
        self._write(frames.encode(frames.NOTE, now_us(), text.encode(errors="replace")), b"")

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the end record, gives back what was allocated ahead, and makes all of it durable.

        If there is no space for what the step handed on, the record goes without it and says so. Raises OSError if
        there is none even for that; it may be called again then.
        """
        self._note_gaps()
        failpoints.hit("end.before")
        start = self._offset
        if not self._write_end(record):
            record = _without_outputs(record)
            if not self._write_end(record):
                raise OSError(errno.ENOSPC, "cannot write the end record")
        if self._allocated > self._offset:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._offset)
        try:
            failpoints.hit("end.written")
            os.fsync(self._fd)
        except OSError:
            self._mark_unsynced(start, record)
        failpoints.hit("end.durable")

    def _write_end(self, record: dict[str, Any]) -> bool:
        frame = frames.encode_end(now_us(), record)
        missing = self._offset + len(frame) - self._allocated
        # Found out without a write: a write that fails gives up what is allocated, and others may take it.
        if missing > 0 and not self._extend(missing) and len(frame) > RESERVE:
            return False
        return self._write(frame, b"")

    def _mark_unsynced(self, start: int, record: dict[str, Any]) -> None:
        """A sync failed: marks the record as unsynced and tries again.

        The marked record is not longer than the unmarked one, so it needs no extra space.
        """
        frame = frames.encode_end(now_us(), record | {"unsynced": True})
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, frame, start)
            os.ftruncate(self._fd, start + len(frame))
            os.fsync(self._fd)

    def _note_gaps(self) -> None:
        self._limit.note_gaps(lambda text: self._write(frames.encode(frames.NOTE, now_us(), text.encode()), b""))

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
            # The truncation released the space reserved for the end record: allocate it again.
            self._extend(RESERVE)
            return False
        self._offset += size
        return True

    def _extend(self, size: int) -> bool:
        """Allocates that much more ahead. False only when the disk is full."""
        start = max(self._allocated, self._offset)
        if self._preallocate and _libc.fallocate(self._fd, _KEEP_SIZE, start, size) != 0:
            if ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT):
                return False
            self._preallocate = False
        self._allocated = start + size
        return True


def _without_outputs(record: dict[str, Any]) -> dict[str, Any]:
    left = {key: value for key, value in record.items() if key not in ("output", "result")}
    if len(left) < len(record):
        left["outputs_lost"] = True
    return left
