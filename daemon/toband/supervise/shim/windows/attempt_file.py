"""Writes an attempt file on Windows: takes the claim, appends frames, closes with the end record.

The claim is the file itself. It is prepared under another name, locked, and then renamed to its own without ever
replacing anything: the first shim owns the attempt, and a visible claim is complete and locked by a live owner, or its
owner is dead.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("attempt files are written in another way elsewhere")

import contextlib
import errno
import os
import threading
import time
from typing import Any

from toband import failpoints
from toband.supervise.shim import frames
from toband.supervise.shim.output_limit import OutputLimit
from toband.supervise.shim.windows import win32

RESERVE = 8 * 1024
"""Bytes allocated ahead of the log, so that a full disk cannot lose the end record."""
_FIRST_STRIDE = 16 * 1024
_STRIDE = 1024 * 1024
_RENAME_TRIES = 100


def now_us() -> int:
    return time.time_ns() // 1000


def claim(directory: str, name: str, facts: dict[str, Any], second: str = "") -> int | None:
    """Takes the claim `directory/name` and makes it durable; the descriptor has its lock. None: another shim owns it.

    If there is a `second` name, the claim needs both. Raises OSError, and then it may or may not exist.
    """
    frame = frames.encode_json(frames.CLAIM, now_us(), facts)
    own = f"{directory}/.{name}.{os.getpid()}-{threading.get_ident()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(own)
    fd = win32.create_new(own)
    try:
        if not win32.try_lock(fd):
            raise OSError(errno.EACCES, "cannot lock the claim")
        if os.write(fd, frame) != len(frame):
            raise OSError(errno.ENOSPC, "cannot write the claim")
        _rename(own, f"{directory}/{name}")
        if second:
            _link_second(f"{directory}/{name}", second)
        failpoints.hit("claim.linked")
        # NTFS writes its journal, and with it the new name, before a flush of the file returns.
        os.fsync(fd)
    except OSError as error:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(own)
        if isinstance(error, FileExistsError):
            return None
        raise
    return fd


def _link_second(path: str, second: str) -> None:
    """Raises FileExistsError; then the first name is removed again. A file system without links uses one name."""
    os.makedirs(os.path.dirname(second), exist_ok=True)
    try:
        os.link(path, second)
    except FileExistsError:
        os.unlink(path)
        raise
    except OSError:
        return


def _rename(own: str, name: str) -> None:
    """Unlike on other systems, this fails if the name exists. Raises OSError."""
    for _ in range(_RENAME_TRIES):
        # Waits for programs that open every new file, such as a virus scanner.
        with contextlib.suppress(PermissionError):
            os.rename(own, name)
            return
        time.sleep(0.01)
    os.rename(own, name)


class AttemptFile:
    """Appends to a claimed file, from any thread. Every frame is complete on disk or absent.

    `limit` and `full` are of OutputLimit.
    """

    def __init__(self, fd: int, limit: int | None = None, full: str = "") -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._limit = OutputLimit(limit, full)
        self._offset = os.fstat(fd).st_size
        self._allocated = self._offset
        self._preallocate = True
        self._closed = False
        self.written = {frames.STDOUT: 0, frames.STDERR: 0}
        self._extend(_FIRST_STRIDE)

    @property
    def dropped(self) -> int:
        return self._limit.dropped

    def append(self, kind: int, payload: bytes) -> None:
        """Appends output of a stream. A disk that refuses writes never stops the step: the bytes are counted."""
        with self._lock:
            if self._closed:
                return
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
        self._note_gaps()
        if self._write(frames.encode(kind, now_us(), payload)):
            self.written[kind] += size
            self._limit.stored(size)
        else:
            self._limit.drop_refused(size)

    def started(self, facts: dict[str, Any]) -> None:
        with self._lock:
            self._write(frames.encode_json(frames.STARTED, now_us(), facts))

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the end record and makes the file durable; nothing is appended any more.

        If there is no space for the step's outputs, the record omits them and says so. Raises OSError if there is no
        space even for that; it may be called again then.
        """
        with self._lock:
            self._closed = True
            self._note_gaps()
            failpoints.hit("end.before")
            start = self._offset
            if not self._write(frames.encode_end(now_us(), record)):
                record = _without_outputs(record)
                if not self._write(frames.encode_end(now_us(), record)):
                    raise OSError(errno.ENOSPC, "cannot write the end record")
            try:
                failpoints.hit("end.written")
                os.fsync(self._fd)
            except OSError:
                self._mark_unsynced(start, record)
            failpoints.hit("end.durable")

    def _mark_unsynced(self, start: int, record: dict[str, Any]) -> None:
        """A flush failed: rewrites the record, marked as uncertain, and tries once more."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, start)
            self._offset = start
            self._write(frames.encode_end(now_us(), record | {"unsynced": True}))
            os.fsync(self._fd)

    def _note_gaps(self) -> None:
        self._limit.note_gaps(lambda text: self._write(frames.encode(frames.NOTE, now_us(), text.encode())))

    def _write(self, data: bytes) -> bool:
        try:
            failpoints.hit("log.write")
            os.lseek(self._fd, self._offset, os.SEEK_SET)
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._offset)
            self._allocated = self._offset
            # That released the space reserved for the end record: allocate it again while there is space.
            self._extend(RESERVE)
            return False
        self._offset += len(data)
        return True

    def _extend(self, size: int) -> bool:
        """Allocates that much more ahead; NTFS releases it when the file is closed. False if the disk is full."""
        upto = max(self._allocated, self._offset) + size
        if self._preallocate:
            try:
                win32.allocate(self._fd, upto)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    return False
                self._preallocate = False
        self._allocated = upto
        return True


def _without_outputs(record: dict[str, Any]) -> dict[str, Any]:
    left = {key: value for key, value in record.items() if key not in ("output", "result")}
    if len(left) < len(record):
        left["outputs_lost"] = True
    return left
