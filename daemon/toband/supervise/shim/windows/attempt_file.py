"""Writing an attempt file on Windows: taking the claim, appending frames, closing with the end record.

The claim is the file itself. It is prepared under another name, locked, and then renamed to its own without ever
replacing anything: whoever comes first owns the attempt, and a claim that can be seen is complete and locked by a
living owner, or its owner is dead.

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
from toband.supervise.shim.windows import win32

RESERVE = 8 * 1024
"""Kept allocated ahead of the log, so that a full disk cannot lose the end record."""
_FIRST_STRIDE = 16 * 1024
_STRIDE = 1024 * 1024
_RENAME_TRIES = 100
_REFUSED = "the disk would not take them"


def now_us() -> int:
    return time.time_ns() // 1000


def claim(directory: str, name: str, facts: dict[str, Any], second: str = "") -> int | None:
    """Takes the claim `directory/name` and makes it durable; the descriptor holds its lock. None: somebody has it.

    It is only had under both names, if there is a `second`. Raises OSError, and then it may or may not be there.
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
    """Raises FileExistsError; then the first name is gone again. A file system without links does with one name."""
    os.makedirs(os.path.dirname(second), exist_ok=True)
    try:
        os.link(path, second)
    except FileExistsError:
        os.unlink(path)
        raise
    except OSError:
        return


def _rename(own: str, name: str) -> None:
    """Unlike anywhere else, this fails if the name is taken. Raises OSError."""
    for _ in range(_RENAME_TRIES):
        # Somebody who looks at every new file, such as a virus scanner, is waited for.
        with contextlib.suppress(PermissionError):
            os.rename(own, name)
            return
        time.sleep(0.01)
    os.rename(own, name)


class AttemptFile:
    """Appends to a claimed file, from any thread. Every frame is whole on disk or not there.

    At most `limit` bytes of output are kept, and none beyond what is allocated while there is a file `full`: by that
    the daemon says that all logs together are as large as they may be. What does not fit is counted.
    """

    def __init__(self, fd: int, limit: int | None = None, full: str = "") -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._limit = limit
        self._room = 1 << 62 if limit is None else limit
        self._full = full
        self._offset = os.fstat(fd).st_size
        self._allocated = self._offset
        self._preallocate = True
        self._closed = False
        self._gaps: dict[str, int] = {}
        self.dropped = 0
        self.written = {frames.STDOUT: 0, frames.STDERR: 0}
        self._extend(_FIRST_STRIDE)

    def append(self, kind: int, payload: bytes) -> None:
        """Adds what a stream printed. A disk that will not take it never stops the step: the bytes are counted."""
        with self._lock:
            if self._closed:
                return
            fits = payload[: self._room]
            if fits:
                self._append(kind, fits)
            if len(fits) < len(payload):
                self._drop(len(payload) - len(fits), f"an attempt may print {self._limit} bytes")

    def _append(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        short = self._offset + size + frames.HEADER.size + RESERVE > self._allocated
        if (short or self._gaps) and self._full and os.path.exists(self._full):
            self._drop(size, "all logs together are as large as they may be")
            return
        if short:
            stride = _STRIDE if self._allocated > _STRIDE // 4 else _FIRST_STRIDE * 4
            if not self._extend(stride + size):
                self._drop(size, _REFUSED)
                return
        self._note_gaps()
        if self._write(frames.encode(kind, now_us(), payload)):
            self.written[kind] += size
            self._room -= size
        else:
            self._drop(size, _REFUSED)

    def started(self, facts: dict[str, Any]) -> None:
        with self._lock:
            self._write(frames.encode_json(frames.STARTED, now_us(), facts))

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the end record and makes all of it durable; nothing is appended any more.

        If there is no space for what the step handed on, the record goes without it and says so. Raises OSError if
        there is none even for that; it may be called again then.
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
        """The disk failed to keep something. What it has is said to be uncertain, and it gets another chance."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, start)
            self._offset = start
            self._write(frames.encode_end(now_us(), record | {"unsynced": True}))
            os.fsync(self._fd)

    def _drop(self, size: int, why: str) -> None:
        self._gaps[why] = self._gaps.get(why, 0) + size
        self.dropped += size

    def _note_gaps(self) -> None:
        for why, size in list(self._gaps.items()):
            text = f"{size} bytes of output were dropped here: {why}"
            if self._write(frames.encode(frames.NOTE, now_us(), text.encode())):
                del self._gaps[why]

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
            # That gave up what was kept for the end: take it again while it is there.
            self._extend(RESERVE)
            return False
        self._offset += len(data)
        return True

    def _extend(self, size: int) -> bool:
        """Allocates that much more ahead, which NTFS takes back when the file is closed. False if the disk is full."""
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
