"""A step that waits until the test lets it go on."""

from __future__ import annotations

import errno
import os

from helpers.waiting import wait_for, wait_until


class Gate:
    """A FIFO: a step reads a line from `path`, and is held until `release`."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.mkfifo(path)

    async def release(self) -> None:
        fd = await wait_for(self._opened, f"nobody waits at {self.path}")
        try:
            os.write(fd, b"go\n")
        finally:
            os.close(fd)

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return 0

    def release_now(self) -> None:
        """The same, for tests without a loop."""
        fd = wait_until(self._opened, f"nobody waits at {self.path}")
        try:
            os.write(fd, b"go\n")
        finally:
            os.close(fd)
