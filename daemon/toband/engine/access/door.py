"""Doors: the addresses that the daemon listens on, as authentication knows them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from toband.domain.identity import Identity, IdentityKind, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    address: str
    role: Role | None = None
    """The role of a caller without a credential; None: a credential is required."""

    @property
    def identity(self) -> Identity:
        """A caller of whom only the door is known."""
        if self.address.startswith("unix://"):
            name = f"socket:{os.path.basename(self.address)}"
        else:
            name = f"socket:{self.address}"
        return Identity(name=name, kind=IdentityKind.SOCKET, role=self.role)
