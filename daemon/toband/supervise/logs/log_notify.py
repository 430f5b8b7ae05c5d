"""Notifies of changes to a directory's files, through inotify: the standard library has no binding."""

from __future__ import annotations

import sys

if sys.platform != "linux":
    raise ImportError("inotify is Linux's")

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator

_IN_MODIFY, _IN_CREATE, _IN_MOVED_TO = 0x2, 0x100, 0x80
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


class DirectoryWatcher:
    """Wakes asyncio events when a file in a watched directory is created or written to."""

    def __init__(self) -> None:
        self._fd = -1
        self._watches: dict[int, set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def watching(self, path: str, event: asyncio.Event) -> Iterator[None]:
        """Sets `event` at each change. Raises OSError if the directory is missing or watches are used up."""
        if self._fd < 0:
            self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._fd < 0:
                raise OSError(ctypes.get_errno(), "cannot use inotify")
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        watch = _libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO)
        if watch < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        events = self._watches.setdefault(watch, set())
        events.add(event)
        try:
            yield
        finally:
            events.discard(event)
            if not events and self._watches.pop(watch, None) is not None:
                _libc.inotify_rm_watch(self._fd, watch)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 64 * 1024)
            position = 0
            seen = set()
            while position + _EVENT.size <= len(data):
                watch, _, _, size = _EVENT.unpack_from(data, position)
                position += _EVENT.size + size
                seen.add(watch)
            # A watch of -1 means that events were dropped: every reader checks.
            for watch in self._watches if -1 in seen else seen:
                for event in self._watches.get(watch, ()):
                    event.set()
