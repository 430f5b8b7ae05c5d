"""The boot of the machine that the daemon finds itself in."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Boot(Protocol):
    @property
    def at(self) -> datetime:
        """When it was first noticed: the same moment for every daemon of that boot."""
        ...

    @property
    def done(self) -> bool:
        """Whether everything that is due once per boot was decided about, by this daemon or one before it."""
        ...

    def finish(self) -> None:
        """Everything was. What cannot be kept of that is looked at again by the next daemon."""
        ...
