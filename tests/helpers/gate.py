"""A step that waits until the test lets it go on."""

from __future__ import annotations

import errno
import os
import stat

from helpers.wait import wait_for, wait_until


class Gate:
    """A FIFO: a step reads a line from `path`, and is held until `release`."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.mkfifo(path)

    async def release(self) -> None:
        self._let_go(await wait_for(self._opened, f"nobody waits at {self.path}"))

    def release_now(self) -> None:
        """The same, for tests without a loop."""
        self._let_go(wait_until(self._opened, f"nobody waits at {self.path}"))

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return 0

    def _let_go(self, fd: int) -> None:
        try:
            # Whoever comes next is to be held again, and not to find this one still open.
            was = os.fstat(fd)
            os.mkfifo(f"{self.path}.next")
            os.chown(f"{self.path}.next", was.st_uid, was.st_gid)
            os.chmod(f"{self.path}.next", stat.S_IMODE(was.st_mode))
            os.rename(f"{self.path}.next", self.path)
            os.write(fd, b"go\n")
        finally:
            os.close(fd)
