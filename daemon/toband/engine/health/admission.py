"""Whether new work may be taken in: not when the disk is nearly full, nor when something else cannot bear it."""

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
"""Times the reserve: once refused, so much must be free again, so that the answer does not change with every file."""
DISK = "disk"
DATABASE = "database"


class Admits(Protocol):
    def check(self, doing: str) -> None:
        """Raises RefusedError if nothing new is taken in; its text begins with "cannot `doing`"."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What is full. `free` and `reserve` are bytes, or inodes."""

    path: str
    free: int
    reserve: int
    inodes: bool = False
    quota: bool = False

    @property
    def detail(self) -> str:
        if self.quota:
            return f"{self.path} takes no more: a quota may be used up; free some space there"
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
    """Who wants no reserve of bytes wants none of inodes either."""
    if not space.inodes or configured == 0:
        return 0
    return min(INODES_MOST, int(space.inodes * INODES_SHARE))


def shortage(spaces: Sequence[Space], configured: int | None, *, refusing: bool, missing: int = 0) -> Shortage | None:
    """The first of them that is too full. While `refusing`, more must be free, and room for the `missing` ballast."""
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
    """Looks at the disk itself, and at what the health of everything else says. Belongs to the event loop."""

    def __init__(self, disk: Disk, health: Health, reserve: int | None) -> None:
        self._disk = disk
        self._health = health
        self._reserve = reserve
        self._found: Shortage | None = None
        self._quota: Shortage | None = None

    def look(self) -> Shortage | None:
        """What is too full right now; health is told. Raises OSError if the disk does not say."""
        refusing = self._found is not None
        found = self._shortage(refusing=refusing) or self._quota
        self._found = found
        if found is None:
            self._health.well(DISK)
        else:
            self._health.trouble(DISK, HealthStatus.REFUSING, found.detail)
        return found

    def room_for_ballast(self) -> bool:
        """Whether it could be made whole and nobody would be refused for it. Raises OSError."""
        return self._quota is None and self._shortage(refusing=True) is None

    def _shortage(self, *, refusing: bool) -> Shortage | None:
        missing = self._disk.ballast - self._disk.ballast_held() if refusing else 0
        return shortage(self._disk.spaces(), self._reserve, refusing=refusing, missing=missing)

    def writing_found_no_space(self, path: str | None) -> None:
        """A write was refused for want of space, whatever the file system says is free; None: they work again."""
        self._quota = None if path is None else Shortage(path=path, free=0, reserve=0, quota=True)

    def check(self, doing: str) -> None:
        """Raises RefusedError; DiskFullError if it is the disk."""
        try:
            full = self.look()
        except OSError:
            full = None  # the watch over the state directory says more
        if full is not None:
            raise DiskFullError(doing, full.detail, path=full.path, free=full.free, reserve=full.reserve)
        for condition in self._health.conditions:
            # A database that failed is asked again by whoever comes: that is the best probe there is.
            if condition.status is HealthStatus.REFUSING and condition.name not in (DISK, DATABASE):
                raise RefusedError(doing, condition.detail, condition=condition.name)


class Always:
    """Takes everything in."""

    def check(self, doing: str) -> None:
        return None
