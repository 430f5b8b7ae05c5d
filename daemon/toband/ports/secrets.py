"""Secrets, as the engine uses them.

SecretError                 has the name of the secret
├── SecretNotFoundError
├── SecretNotGrantedError   has the workflow
└── SecretUnavailableError  has the reason
SealError                   has the place and the reason
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol


class SecretError(Exception):
    """A secret cannot be used. No text of these errors contains a value."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class SecretNotFoundError(SecretError):
    def __init__(self, name: str) -> None:
        super().__init__(name, f"there is no secret {name!r}: create it with 'toban secrets set {name}'")


class SecretNotGrantedError(SecretError):
    def __init__(self, name: str, workflow: str) -> None:
        super().__init__(
            name,
            f"workflow {workflow!r} may not use the secret {name!r}: grant it with "
            f"'toban secrets grant {name} {workflow}'",
        )
        self.workflow = workflow


class SecretUnavailableError(SecretError):
    """The value cannot be read now: a missing key, a provider that fails."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, f"cannot read the secret {name!r}: {reason}")
        self.reason = reason


class SealError(Exception):
    """A text cannot be sealed, or sealed data cannot be opened: a missing or wrong key, damage, another place."""

    def __init__(self, doing: str, place: str, reason: str) -> None:
        super().__init__(f"cannot {doing} {place}: {reason}")
        self.place, self.reason = place, reason


class SecretSource(Protocol):
    """Values of secrets, and encryption for other confidential texts. Values have 6 characters to 64 KiB."""

    async def reveal(self, workflow: str, names: Collection[str]) -> Mapping[str, str]:
        """The values of these secrets, by name, for a step of this workflow.

        Raises SecretNotFoundError, SecretNotGrantedError and SecretUnavailableError, for the first name in order that
        cannot be used.
        """
        ...

    async def check(self, workflow: str, names: Collection[str]) -> Sequence[SecretError]:
        """Why this workflow cannot use these secrets: unknown or not granted. Reads no value."""
        ...

    def seal(self, text: str, place: str) -> bytes:
        """Encrypts a text for one place, such as a parameter of a run. Raises SealError."""
        ...

    def unseal(self, data: bytes, place: str) -> str:
        """The text that was sealed for this place. Raises SealError."""
        ...
