"""Reads files of calendars."""

from __future__ import annotations

import os
import stat

MOST_BYTES = 1024 * 1024


class HostCalendarFiles:
    """`toband.ports.CalendarFiles`."""

    def read(self, path: str) -> str:
        # Opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("not a regular file")
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError("too large")
        return content.decode("utf-8")
