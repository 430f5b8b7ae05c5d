"""Admission: refuses new work while the disk is nearly full or another condition refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from toban.quantity_text import size_text
from toband.engine.errors import DiskFullError, RefusedError
from toband.engine.health.health_conditions import Health
from toband.ports import Disk, HealthStatus, Space

RESERVE_MOST = 512 * 1024 * 1024
RESERVE_SHARE = 0.05
INODES_MOST = 1000
INODES_SHARE = 0.05
AGAIN_ABOVE = 1.1
"""Hysteresis: after a refusal, this multiple of the reserve must be free before work is admitted again."""
DISK = "disk"
DATABASE = "database"


class Admits(Protocol):
    def check(self, doing: str) -> None:
        """Raises RefusedError if new work is refused; its message begins with "cannot `doing`"."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A file system below its reserve. `free` and `reserve` are bytes, or inodes."""

    path: str
    free: int
    reserve: int
    inodes: bool = False
    quota: bool = False

    @property
    def detail(self) -> str:
        if self.quota:
            return f"{self.path} accepts no more data, perhaps because of a quota; free some space there"
        if self.inodes:
            return (
                f"the file system of {self.path} has {self.free} free inodes, the reserve is {self.reserve}; "
                "remove some files there"
            )
        return (
            f"the file system of {self.path} has {size_text(self.free)} free, the reserve is "
            f"{size_text(self.reserve)}; free some space there"
        )


def reserve_of(space: Space, configured: int | None) -> int:
    """Bytes that new work must leave free."""
    if configured is not None:
        return configured
    return min(RESERVE_MOST, int(space.total * RESERVE_SHARE))


def inode_reserve_of(space: Space, configured: int | None) -> int:
    """Inodes that new work must leave free; none if the reserve of bytes is turned off."""
    if not space.inodes or configured == 0:
        return 0
    return min(INODES_MOST, int(space.inodes * INODES_SHARE))


def shortage(spaces: Sequence[Space], configured: int | None, *, refusing: bool, missing: int = 0) -> Shortage | None:
    """The first file system below its reserve. While `refusing`, it must also have room for the `missing` ballast."""
    for space in spaces:
        reserve = reserve_of(space, configured)
        enough = max(int(reserve * AGAIN_ABOVE), reserve + missing) if refusing else reserve
        if space.free < enough and reserve:
            return Shortage(path=space.path, free=space.free, reserve=reserve)
        inodes = inode_reserve_of(space, configured)
        wanted = int(inodes * AGAIN_ABOVE) if refusing else inodes
        if space.free_inodes is not None and space.free_inodes < wanted:
            return Shortage(path=space.path, free=space.free_inodes, reserve=inodes, inodes=True)
    return None


class Admission:
    """Checks the disk itself and the conditions of health. Belongs to the event loop."""

    def __init__(self, disk: Disk, health: Health, reserve: int | None) -> None:
        self._disk = disk
        self._health = health
        self.reserve = reserve
        self._found: Shortage | None = None
        self._quota: Shortage | None = None

    def look(self) -> Shortage | None:
        """The current shortage, also reported to health. Raises OSError if the disk cannot be read."""
        refusing = self._found is not None
        found = self._shortage(refusing=refusing) or self._quota
        self._found = found
        if found is None:
            self._health.well(DISK)
        else:
            self._health.trouble(DISK, HealthStatus.REFUSING, found.detail)
        return found

    def room_for_ballast(self) -> bool:
        """Whether the ballast can be completed without causing a refusal. Raises OSError."""
        return self._quota is None and self._shortage(refusing=True) is None

    def _shortage(self, *, refusing: bool) -> Shortage | None:
        missing = self._disk.ballast - self._disk.ballast_held() if refusing else 0
        return shortage(self._disk.spaces(), self.reserve, refusing=refusing, missing=missing)

    def writing_found_no_space(self, path: str | None) -> None:
        """A write failed for lack of space although the file system reports some; None when writes work again."""
        self._quota = None if path is None else Shortage(path=path, free=0, reserve=0, quota=True)

    def check(self, doing: str) -> None:
        """Raises RefusedError; DiskFullError if it is the disk."""
        try:
            full = self.look()
        except OSError:
            full = None  # the host monitor reports this
        if full is not None:
            raise DiskFullError(doing, full.detail, path=full.path, free=full.free, reserve=full.reserve)
        for condition in self._health.conditions:
            # The next call tries a failed database again: that is the best probe.
            if condition.status is HealthStatus.REFUSING and condition.name not in (DISK, DATABASE):
                raise RefusedError(doing, condition.detail, condition=condition.name)


class Always:
    """Admits everything."""

    def check(self, doing: str) -> None:
        return None
