"""Places the inputs of a step in its workspace."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from toband import stored_json
from toband.ports import ArtifactError, Placement
from toband.supervise.artifacts.file_copy import Transfer
from toband.supervise.artifacts.path_selection import (
    EMPTY_DIRECTORY,
    EMPTY_FILE,
    EntryKind,
    SelectedEntry,
    fingerprint,
    identity,
    tree,
)
from toband.supervise.files.file_budget import Budget, FileLimits, TooMuchError
from toband.supervise.files.file_user import FileUser
from toband.supervise.files.safe_directory import (
    LeadsOutError,
    SafeDirectory,
    SpecialFileError,
    clean,
    joined,
)

PRUNED_EVERY = 256
"""Notes after which those of inputs that are gone are removed."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Records the inputs placed in directories outside of the run's own, to tell them from files of others.

    One small file for each path, in a directory of the daemon. Losing one costs no more than a refusal.
    """

    directory: str
    _notes: Iterator[int] = field(default_factory=count)

    def note(self, path: str, seen: str) -> None:
        """Raises OSError."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        own = self._file(path)
        new = f"{own}.{threading.get_native_id()}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump({"path": path, "identity": seen}, file)
        os.replace(new, own)
        if next(self._notes) % PRUNED_EVERY == 0:
            self._prune()

    def _prune(self) -> None:
        """Removes the notes of inputs that are gone."""
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    with open(entry.path, encoding="utf-8") as file:
                        path = str(stored_json.parse_object(file.read())["path"])
                    if not os.path.lexists(path):
                        os.unlink(entry.path)

    def knows(self, path: str, seen: str) -> bool:
        try:
            with open(self._file(path), encoding="utf-8") as file:
                return bool(stored_json.parse_object(file.read())["identity"] == seen)
        except (OSError, ValueError, KeyError):
            return False

    def _file(self, path: str) -> str:
        name = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()
        return os.path.join(self.directory, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """`link`: files are linked where that is possible. `limits` apply to reading the files of others."""

    ledger: Ledger
    link: bool
    limits: FileLimits

    def place(
        self,
        workspace: str,
        placements: Sequence[Placement],
        *,
        own: bool,
        budget: Budget,
        user: FileUser | None = None,
    ) -> None:
        """See `ports.Artifacts`. Raises StoppedError too."""
        try:
            opened = SafeDirectory(workspace, user=user)
        except (FileNotFoundError, NotADirectoryError):
            raise ArtifactError(f"cannot lay out the inputs: there is no directory {workspace}") from None
        except PermissionError as error:
            raise ArtifactError(f"cannot lay out the inputs in {workspace}: {error.strerror}") from None
        with opened as target:
            for placement in placements:
                try:
                    self._place(target, placement, own, budget)
                except LeadsOutError as error:
                    raise ArtifactError(
                        f"cannot lay out the input {placement.path}: {error}; it must stay in the workspace {workspace}"
                    ) from None
                except (
                    _TakenError,
                    SpecialFileError,
                    TooMuchError,
                    NotADirectoryError,
                    PermissionError,
                ) as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    raise ArtifactError(f"cannot lay out the input {placement.path} in {workspace}: {reason}") from None

    def _place(self, target: SafeDirectory, placement: Placement, own: bool, budget: Budget) -> None:
        path = clean(placement.path)
        if not path:
            raise LeadsOutError("it would take the place of the workspace itself")
        parent, _, name = path.rpartition("/")
        parent = target.resolve(parent)
        target.make_directories(parent)
        spot = joined(parent, name)
        if placement.source is None:
            empty = EMPTY_DIRECTORY if placement.directory else EMPTY_FILE
            self._put(target, [empty], target, spot, own, budget)
            return
        above, last = os.path.split(placement.source.rstrip(f"/{os.sep}"))
        try:
            source = SafeDirectory(above)
        except FileNotFoundError:
            raise _gone(placement) from None
        with source:
            if not source.exists(last):
                raise _gone(placement)
            entries = tree(source, last, budget)
            self._put(source, entries, target, spot, own, budget)

    def _put(
        self,
        source: SafeDirectory,
        entries: Sequence[SelectedEntry],
        target: SafeDirectory,
        spot: str,
        own: bool,
        budget: Budget,
    ) -> None:
        full = os.path.join(target.real, spot)
        if target.exists(spot):
            if _same_file(source, entries, target, spot):
                return
            seen = "" if own else identity(target, spot, budget.renewed(self.limits))
            if not own and not self.ledger.knows(full, seen):
                if _same(source, entries, target, spot, budget.renewed(self.limits)):
                    return
                raise _TakenError
        Transfer(source=source, target=target, link=self.link, budget=budget).put(entries, spot)
        if not own:
            self.ledger.note(full, identity(target, spot, budget))


class _TakenError(Exception):
    """Another owner's file is there."""

    def __str__(self) -> str:
        return "something else is there already; remove it, or give the input another name with `as`"


def _gone(placement: Placement) -> ArtifactError:
    return ArtifactError(f"cannot lay out the input {placement.path}: {placement.source} is gone")


def _same_file(source: SafeDirectory, entries: Sequence[SelectedEntry], target: SafeDirectory, spot: str) -> bool:
    """Whether it is a link to the very file."""
    if len(entries) != 1 or entries[0].kind is not EntryKind.FILE or not entries[0].source:
        return False
    return os.path.samestat(source.facts(entries[0].source), target.facts(spot))


def _same(
    source: SafeDirectory, entries: Sequence[SelectedEntry], target: SafeDirectory, spot: str, budget: Budget
) -> bool:
    """Whether the files there equal those to be placed. Files that differ in name or size are not read."""
    if stat.S_ISLNK(target.facts(spot).st_mode):
        return False
    try:
        there = tree(target, spot, budget)
        if _outline(there) != _outline(entries):
            return False
        unlimited = budget.renewed(None)
        return fingerprint(source, entries, unlimited) == fingerprint(target, there, unlimited)
    except (LeadsOutError, SpecialFileError):
        return False


def _outline(entries: Sequence[SelectedEntry]) -> list[tuple[str, EntryKind, int]]:
    return [(entry.path, entry.kind, entry.size) for entry in entries]
