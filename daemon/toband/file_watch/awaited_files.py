"""Looks at the files that steps wait for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping

from toband.ports import FileMark


class FileLooks:
    """Implements `ports.AwaitedFiles`. In a thread: a file system may be slow to answer."""

    async def look(self, paths: Collection[str]) -> Mapping[str, FileMark]:
        return await asyncio.to_thread(_look, paths)


def _look(paths: Collection[str]) -> dict[str, FileMark]:
    found = {}
    for path in paths:
        try:
            seen = os.stat(path)
        except (OSError, ValueError):
            continue
        content = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
        # A rename changes only the time of the last status change.
        found[path] = FileMark(content, max(seen.st_mtime, seen.st_ctime))
    return found
