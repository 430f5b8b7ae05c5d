"""The format of a backup: a tar archive (pax), compressed with gzip, that says by itself whether it is whole.

The first member is the manifest, the last one the end, and both are JSON. The header of every member has, as a comment
of pax, the SHA-256 of everything before it, so damage is found where it is, and that of its own contents if they were
known when it was written, which is all but files. An archive that was cut off has no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
END = "end.json"
ROWS = "rows"
RUNS = "runs"
KEY = "secrets.key"
CONFIG = "config.toml"
DEFINITIONS = "definitions"
COMMENT = "comment"
BLOCK = 512


def comment(before: str, own: str = "") -> str:
    """Of a header: the digest of everything before it, and that of the member itself if it is known by then."""
    return f"sha256 {before} {own}".rstrip()


class ArchiveError(Exception):
    """A file is not a whole backup that this release can read; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    format: int
    version: str
    """Of the daemon that wrote it."""
    revision: str
    """Of the schema of its database."""
    database: str
    """The kind of its database."""
    installation: str
    host: str
    state_dir: str
    taken_at: str
    """When its rows were as they are in here: ISO 8601."""
    rows: Mapping[str, int]
    """The number of rows by table."""
    columns: Mapping[str, list[str]]
    """The columns of the rows by table."""
    config_file: str
    """Where the configuration was; empty if there was no file."""
    definitions: list[str]
    """Where the definition files were; `definitions/0` has the first, and so on."""
    with_key: bool

    @classmethod
    def parse(cls, known: Any) -> Manifest:
        """Raises ArchiveError."""
        if not isinstance(known, dict) or known.get("format") != FORMAT:
            found = known.get("format") if isinstance(known, dict) else None
            raise ArchiveError(f"its format is {found}, and this release reads format {FORMAT}")
        try:
            return cls(**{name: known[name] for name in cls.__dataclass_fields__})
        except KeyError as error:
            raise ArchiveError(f"its manifest has no {error.args[0]}") from None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEnd:
    """The contents of the archive, and the files that are missing from it."""

    files: int
    bytes: int
    """Of all files, before compression."""
    removed_runs: list[str]
    """Runs that have rows, but were removed before their files were read."""
    left_out: list[str]
    """Paths that could not be read, and why; at most some of them."""
    files_left_out: int

    @classmethod
    def parse(cls, known: Any) -> ArchiveEnd:
        """Raises ArchiveError."""
        try:
            return cls(**{name: known[name] for name in cls.__dataclass_fields__})
        except (KeyError, TypeError):
            raise ArchiveError("its end cannot be read") from None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
