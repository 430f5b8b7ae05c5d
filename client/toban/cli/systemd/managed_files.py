"""The files that an installation writes: never over a change that an administrator made."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from toban.cli.error_report import Failure
from toban.cli.exits import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """What happened to one file or to the service, or would happen."""

    action: str
    """created, updated, unchanged, kept, removed, started, restarted…"""
    subject: str
    note: str = ""


class ManagedFiles:
    """Writes files, notes what changed, and knows by their digests which are as they were written.

    `digests` is that of the installation's record; with `dry_run` it writes nothing.
    """

    def __init__(self, digests: dict[str, str], *, dry_run: bool) -> None:
        self.digests = digests
        self.dry_run = dry_run
        self.changes: list[ServiceChange] = []

    def note(self, action: str, subject: str, note: str = "") -> None:
        self.changes.append(ServiceChange(action=action, subject=subject, note=note))

    def place(self, path: str, text: str, *, mode: int = 0o644, group: str = "", replace: bool = False) -> bool:
        """Brings a file to this text; whether that changed it. Raises Failure.

        An edited file stays as it is, and the new text goes beside it as PATH.new; `replace` replaces it
        anyway, and keeps the old one as PATH.old.
        """
        found = read_text(path)
        ours = found is not None and self.digests.get(path) == _digest(found)
        if found is None or found == text or ours or replace:
            self._drop(f"{path}.new")
        if found == text:
            self.digests[path] = _digest(text)
            self.note("unchanged", path)
            return False
        if found is None or ours or replace:
            self._write(path, text, mode, group, keep=found is not None and not ours)
            note = f"the earlier file is {path}.old" if found is not None and not ours else ""
            self.note("created" if found is None else "updated", path, note)
            self.digests[path] = _digest(text)
            return True
        self._write(f"{path}.new", text, mode, group, keep=False)
        self.note("kept", path, f"it was edited; the new one is {path}.new")
        return False

    def place_once(self, path: str, text: str, *, mode: int, group: str = "") -> bool:
        """Creates a configuration file. One that exists belongs to the administrator."""
        if os.path.lexists(path):
            self.note("unchanged", path)
            return False
        self._write(path, text, mode, group, keep=False)
        self.note("created", path)
        return True

    def link(self, path: str, target: str, *, owned: Callable[[str], bool]) -> bool:
        """Brings a symbolic link to this target; one that leads elsewhere, or another file, stays unless `owned`."""
        try:
            found = os.readlink(path)
        except OSError:
            found = ""
        if found == target:
            self.note("unchanged", path)
            return False
        if os.path.lexists(path) and not (found and owned(found)):
            self.note("kept", path, "it belongs to another installation")
            return False
        if not self.dry_run:
            with failures(path):
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{path}.new")
                os.symlink(target, f"{path}.new")
                os.replace(f"{path}.new", path)
        self.note("updated" if found else "created", path, f"leads to {target}")
        return True

    def remove(self, path: str, *, only_ours: bool = False) -> bool:
        """Removes a file or a link; with `only_ours` an edited one stays."""
        if not os.path.lexists(path):
            return False
        if only_ours and (found := read_text(path)) is not None and self.digests.get(path) != _digest(found):
            self.note("kept", path, "it was edited")
            return False
        self._drop(path)
        self._drop(f"{path}.new")
        self.digests.pop(path, None)
        self.note("removed", path)
        return True

    def _drop(self, path: str) -> None:
        if not self.dry_run:
            with failures(path), contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _write(self, path: str, text: str, mode: int, group: str, *, keep: bool) -> None:
        if self.dry_run:
            return
        with failures(path):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            if keep:
                os.replace(path, f"{path}.old")
            write_file(path, text, mode, group)


def write_file(path: str, text: str, mode: int, group: str = "") -> None:
    """Replaces a file atomically and durably. Raises OSError."""
    new = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if sys.platform != "win32":
            if group:
                import grp

                os.fchown(file.fileno(), -1, grp.getgrnam(group).gr_gid)
            os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(new, path)


def read_text(path: str) -> str | None:
    """None if there is no such file. Raises Failure."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", Exit.REFUSED) from None


@contextlib.contextmanager
def failures(path: str) -> Iterator[None]:
    """Turns an OSError into a Failure."""
    try:
        yield
    except PermissionError as error:
        raise Failure(f"cannot write {path}: {error.strerror}", Exit.REFUSED, hint="run it as root") from None
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}", Exit.INTERNAL) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
