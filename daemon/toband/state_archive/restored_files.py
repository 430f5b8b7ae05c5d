"""The files of a backup, written below one directory."""

from __future__ import annotations

import os
import stat
import sys
import tarfile

from toband.state_archive.archive_format import ArchiveError
from toband.state_archive.archive_reader import Member


class RestoredFiles:
    """Creates files, links and directories below one directory, and never through a link."""

    def __init__(self, top: str) -> None:
        self._top = os.path.realpath(top)
        self._directories: list[tuple[str, tarfile.TarInfo]] = []
        self._checked = ""
        self._is_root = sys.platform != "win32" and os.geteuid() == 0

    def add(self, member: Member, name: str) -> None:
        """Raises ArchiveError for a name that leads out, OSError."""
        info = member.info
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise ArchiveError(f"cannot use the backup: {name!r} is no path in a state directory")
        path = os.path.join(self._top, *parts)
        self._leave(path)
        self._check_parent(os.path.dirname(path))
        if info.isdir():
            os.mkdir(path, 0o700)
            self._directories.append((path, info))
        elif info.issym():
            os.symlink(info.linkname, path)
            self._own(path, info)
        elif info.isreg():
            self._write(path, member)
        else:
            raise ArchiveError(f"cannot use the backup: {name!r} is neither a file, a directory nor a link")

    def close(self) -> None:
        self._leave("")

    def _check_parent(self, parent: str) -> None:
        if parent == self._checked:
            return
        if os.path.realpath(parent) != parent:
            raise ArchiveError(f"cannot use the backup: {parent} leads through a link")
        os.makedirs(parent, mode=0o700, exist_ok=True)
        self._checked = parent

    def _write(self, path: str, member: Member) -> None:
        with open(path, "xb", opener=_private) as file:
            for piece in member.pieces:
                if piece.count(0) == len(piece):
                    # A hole stays one.
                    file.seek(len(piece), os.SEEK_CUR)
                else:
                    file.write(piece)
            file.truncate(member.info.size)
        self._own(path, member.info)
        self._finish(path, member.info)

    def _leave(self, path: str) -> None:
        """Directories get their mode and time when they are complete: it may forbid to write to them."""
        while self._directories and not path.startswith(f"{self._directories[-1][0]}{os.sep}"):
            directory, info = self._directories.pop()
            self._own(directory, info)
            self._finish(directory, info)

    def _own(self, path: str, info: tarfile.TarInfo) -> None:
        if self._is_root and sys.platform != "win32":
            os.chown(path, info.uid, info.gid, follow_symlinks=False)

    def _finish(self, path: str, info: tarfile.TarInfo) -> None:
        kept = info.mode if self._is_root else info.mode & ~(stat.S_ISUID | stat.S_ISGID)
        os.chmod(path, kept)
        os.utime(path, (info.mtime, info.mtime))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
