"""The current boot of the machine."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Boot(Protocol):
    @property
    def at(self) -> datetime:
        """When a daemon first noticed it: the same time for every daemon of that boot."""
        ...

    @property
    def done(self) -> bool:
        """Whether this or an earlier daemon has decided everything that is due once per boot."""
        ...

    def finish(self) -> None:
        """Records that all of it is decided. If that cannot be written, the next daemon decides it again."""
        ...
