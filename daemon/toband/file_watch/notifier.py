"""Interface to the change notifications of the operating system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import Enum, auto
from typing import Protocol

from toband.file_watch.path_state import Spot


class NotificationKind(Enum):
    ADDED = auto()
    MOVED = auto()
    """Added by a rename, where the system tells: a file is complete."""
    MODIFIED = auto()
    DELETED = auto()
    GONE = auto()
    """A watched directory was moved or deleted."""
    LOST = auto()
    """The system dropped notifications: anything may have changed. Has no path."""


Told = tuple[str, NotificationKind]


class Notifier(Protocol):
    """Belongs to one thread, except for `wake`."""

    def want(self, spots: Set[Spot], fresh: Set[Spot]) -> None:
        """Watches these and no others. Entries that exist below one of `fresh` are reported as ADDED."""
        ...

    def wait(self, timeout: float) -> Sequence[Told]:
        """Notifications since the last call; empty after that many seconds, or earlier if there is work or a wake."""
        ...

    def try_again(self) -> None:
        """Tries again to watch directories that failed."""
        ...

    def wake(self) -> None:
        """Ends a wait. May be called from any thread."""
        ...

    def close(self) -> None: ...

    @property
    def busy(self) -> bool:
        """Whether watches are still being set up."""
        ...

    @property
    def troubles(self) -> Mapping[str, str]: ...
