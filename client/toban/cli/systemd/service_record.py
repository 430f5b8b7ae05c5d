"""What is installed: the version in use, the one before it, and the digests of the files that were written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.systemd.managed_files import failures, read_text, write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceVersion:
    """A version that can be used: its virtual environment, and the unit that it was started with."""

    version: str
    directory: str
    unit: str


@dataclass(slots=True, kw_only=True)
class ServiceRecord:
    current: ServiceVersion | None = None
    previous: ServiceVersion | None = None
    digests: dict[str, str] = field(default_factory=dict)

    def save(self, path: str) -> None:
        """Raises Failure."""
        with failures(path):
            write_file(path, f"{json.dumps(asdict(self), indent=2)}\n", 0o644)


def read_record(path: str) -> ServiceRecord:
    """An empty one if nothing is installed. Raises Failure."""
    text = read_text(path)
    if text is None:
        return ServiceRecord()
    try:
        facts = json.loads(text)
        return ServiceRecord(
            current=_version(facts["current"]),
            previous=_version(facts["previous"]),
            digests={str(path): str(digest) for path, digest in facts["digests"].items()},
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        raise Failure(
            f"cannot read {path}: it is not a record of `toban service install`",
            Exit.CONFLICT,
            hint="remove it, and run `toban service install` again",
        ) from None


def _version(facts: dict[str, Any] | None) -> ServiceVersion | None:
    if facts is None:
        return None
    return ServiceVersion(version=str(facts["version"]), directory=str(facts["directory"]), unit=str(facts["unit"]))
