"""Secrets, as the engine uses them.

SecretError                 has the name of the secret
├── SecretNotFoundError
├── SecretNotGrantedError   has the workflow
└── SecretUnavailableError  has the reason
SealError                   has the place and the reason
SecretKeyError
ProviderError
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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


class SecretKeyError(Exception):
    """The file of the secrets key cannot be read or written, or must not be changed; the text says why."""


class ProviderError(Exception):
    """An external store gives no value; the text says why, and contains no output of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """A key that encrypts secrets. Its id says which key it is, and tells nothing about it."""

    id: str
    key: bytes

    def __repr__(self) -> str:
        return f"SecretKey(id={self.id!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A secret as it is stored: its value encrypted, or where a provider has it.

    `version` counts the values that it has had. `workflows` are the names and patterns of the workflows that may use
    it. Without a `provider`, `data` is the current value, encrypted for this name and version.
    """

    name: str
    version: int
    data: bytes | None = None
    provider: str = ""
    provider_key: str = ""
    workflows: tuple[str, ...] = ()
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    last_used_at: datetime | None = None
    last_used_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSealKey:
    """A key that seals other confidential texts, encrypted by the secrets key `key_id`."""

    number: int
    key_id: str
    data: bytes
    created_at: datetime


class SecretStore(Protocol):
    async def list_secrets(self) -> Sequence[StoredSecret]:
        """All of them, by name."""
        ...

    async def get_secrets(self, names: Collection[str]) -> Sequence[StoredSecret]:
        """Those that exist, by name."""
        ...

    async def save_secret(self, secret: StoredSecret, before: int) -> bool:
        """Creates it, or replaces the one that has the version `before`; False if that is not its version.

        A new secret has 0 before. The last use is not changed.
        """
        ...

    async def delete_secret(self, name: str) -> bool: ...

    async def note_secret_use(self, name: str, at: datetime, workflow: str) -> None: ...

    async def list_seal_keys(self) -> Sequence[StoredSealKey]:
        """By number; all are encrypted by the same secrets key."""
        ...

    async def add_seal_key(self, key: StoredSealKey) -> bool:
        """False if there is one with its number."""
        ...

    async def replace_encryption(
        self, before: str, keys: Sequence[StoredSealKey], secrets: Sequence[StoredSecret]
    ) -> bool:
        """Replaces all seal keys and the data of these secrets, in one transaction.

        False, and nothing is changed, if the current secrets key is not `before`, or if the secrets that have data are
        not these in these versions.
        """
        ...


class SecretKeyFile(Protocol):
    """The file with the keys that encrypt secrets. The first is the one to encrypt with; all are tried to decrypt.

    Does blocking work. Everything raises SecretKeyError.
    """

    @property
    def place(self) -> str:
        """The path of the file, for messages."""
        ...

    @property
    def writable(self) -> bool:
        """Whether the daemon may change it."""
        ...

    def read(self) -> Sequence[SecretKey]:
        """Empty if there is no file."""
        ...

    def create(self) -> SecretKey:
        """Makes a file with a new key; never replaces one. Durable when it returns."""
        ...

    def prepend(self, keys: Sequence[SecretKey]) -> SecretKey:
        """Adds a new key before these. Durable when it returns."""
        ...

    def keep(self, keys: Sequence[SecretKey]) -> None:
        """Removes all other keys from the file. Durable when it returns."""
        ...


class SecretProvider(Protocol):
    """An external store of secrets."""

    async def fetch(self, name: str, key: str) -> str:
        """The value of the secret `name`, which the store knows by `key`. Raises ProviderError."""
        ...

    def check_key(self, key: str) -> None:
        """Raises ValueError for a key that it cannot have."""
        ...


class SecretSource(Protocol):
    """Values of secrets, and encryption for other confidential texts. Values have 6 characters to 64 KiB."""

    async def reveal(self, workflow: str, names: Collection[str]) -> Mapping[str, str]:
        """The values of these secrets, by name, for a step of this workflow.

        Raises SecretNotFoundError, SecretNotGrantedError and SecretUnavailableError, for the first name in order that
        cannot be used.
        """
        ...

    async def known(self, names: Collection[str]) -> Mapping[str, str]:
        """The values of those that exist, to keep them out of texts: no step gets them.

        Raises SecretUnavailableError, StoreError.
        """
        ...

    async def check(self, workflow: str, names: Collection[str]) -> Sequence[SecretError]:
        """Why this workflow cannot use these secrets: unknown or not granted. Reads no value."""
        ...

    async def seal(self, text: str, place: str) -> bytes:
        """Encrypts a text for one place, such as a parameter of a run. Raises SealError."""
        ...

    async def unseal(self, data: bytes, place: str) -> str:
        """The text that was sealed for this place. Raises SealError."""
        ...

    async def keyed_digest(self, text: str) -> str:
        """A digest of a confidential text, which tells nothing without the key. Raises SealError."""
        ...
