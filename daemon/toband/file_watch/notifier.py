"""What the system is asked to tell of directories, whichever way it does that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import Enum, auto
from typing import Protocol

from toband.file_watch.path_state import Spot


class NotificationKind(Enum):
    ADDED = auto()
    MODIFIED = auto()
    DELETED = auto()
    GONE = auto()
    """A watched directory is itself not where it was."""
    LOST = auto()
    """The system had more to tell than it keeps: anything may have changed. Has no path."""


Told = tuple[str, NotificationKind]


class Notifier(Protocol):
    """Belongs to one thread, but for `wake`."""

    def want(self, spots: Set[Spot], fresh: Set[Spot]) -> None:
        """Watches these and no others. What is already below one of `fresh` is told as ADDED."""
        ...

    def wait(self, timeout: float) -> Sequence[Told]:
        """What was told since the last time; empty after so many seconds, earlier if there is work, or when woken."""
        ...

    def try_again(self) -> None:
        """What could not be watched."""
        ...

    def wake(self) -> None:
        """Ends a wait. From any thread."""
        ...

    def close(self) -> None: ...

    @property
    def busy(self) -> bool:
        """Some of what is wanted is not watched yet, and nothing is in the way of that."""
        ...

    @property
    def troubles(self) -> Mapping[str, str]: ...
