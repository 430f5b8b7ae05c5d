"""A disk and descriptors that a test fills. Implements `ports.Disk` and `ports.Descriptors`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toband.ports import Space

MIB = 1024 * 1024


@dataclass
class FakeDisk:
    """`free` counts without the ballast; `refuses` is raised by every write."""

    total: int = 1000 * MIB
    free: int = 900 * MIB
    inodes: int | None = None
    free_inodes: int | None = None
    ballast: int = 16 * MIB
    held: int = 0
    refuses: OSError | None = None
    writes: int = 0
    reached: int = 0

    def spaces(self) -> Sequence[Space]:
        space = Space(path="/state", total=self.total, free=self.free - self.held)
        return [replace(space, inodes=self.inodes, free_inodes=self.free_inodes)]

    def try_write(self) -> None:
        self.writes += 1
        if self.refuses is not None:
            raise self.refuses

    def ballast_held(self) -> int:
        return self.held

    def shed_half(self) -> bool:
        before, self.held = self.held, min(self.held, self.ballast // 2)
        return self.held < before

    def shed_piece(self) -> bool:
        before, self.held = self.held, max(0, self.held - MIB)
        return self.held < before

    def take_ballast(self) -> None:
        self.held = self.ballast

    def reach_ahead(self) -> None:
        self.reached += 1


@dataclass
class FakeDescriptors:
    """`found`: how many are open, and how many there may be; None if the host does not tell."""

    found: tuple[int, int] | None = (10, 100)

    def open_and_most(self) -> tuple[int, int] | None:
        return self.found
