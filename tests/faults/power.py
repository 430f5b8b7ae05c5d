"""A disk whose power can be cut: an ext4 image behind a loop device, shut down without writing anything back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from faults.leftovers import end_all
from helpers.wait import wait_until

_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSH = 2
_TOOLS = ("mkfs.ext4", "mount", "umount", "losetup")


def why_not() -> str:
    """Why there can be no such disk here; empty if there can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    missing = [tool for tool in _TOOLS if not _found(tool)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    return ""


def _found(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _run(tool: str, *arguments: str) -> str:
    program = _found(tool)
    assert program is not None
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"cannot {tool} {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout


class Disk:
    """`directory` is mounted while the power is on."""

    def __init__(self, image: Path, directory: Path, options: str = "") -> None:
        self.directory = directory
        self._image = image
        self._options = ",".join(filter(None, ("loop", options)))

    def on(self) -> None:
        _run("mount", "-o", self._options, str(self._image), str(self.directory))

    def cut(self) -> None:
        """From now on nothing reaches the disk; what had not, never will."""
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(fd)

    def off(self) -> None:
        """Whoever used it must be gone; the kernel may need a moment to notice."""
        wait_until(self._unmounted, f"{self.directory} cannot be unmounted")
        # A container that is starting elsewhere, such as the machine of the systemd tests, has a copy of the mount, for
        # about a minute. Until it drops that, `on` would bring back the file system as the cut left it in memory.
        kept = f"the disk of {self.directory} stays in use, in another mount namespace"
        wait_until(lambda: not self.devices(), kept, deadline=180)

    def break_it(self) -> bool:
        """Makes the kernel believe that it found an error. False: this is not possible."""
        (device,) = self.devices()
        path = Path(f"/sys/fs/ext4/{Path(device.partition(':')[0]).name}/trigger_fs_error")
        try:
            path.write_text("asked for by a test")
        except OSError:
            return False
        return True

    def devices(self) -> Sequence[str]:
        """Loop devices that still belong to the image."""
        return _run("losetup", "-j", str(self._image)).split("\n")[:-1]

    def _unmounted(self) -> bool:
        with contextlib.suppress(AssertionError):
            _run("umount", str(self.directory))
        return not os.path.ismount(self.directory)


@contextlib.contextmanager
def disk(directory: Path, *, megabytes: int = 512, options: str = "") -> Iterator[Disk]:
    """A new disk, mounted. At the end everything on it is ended, unmounted and detached, whatever happened."""
    image = directory / "disk.img"
    mounted = directory / "m"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    # Without lazy initialisation nothing is written but what we write.
    eager = "lazy_itable_init=0,lazy_journal_init=0"
    _run("mkfs.ext4", "-q", "-E", eager, str(image))
    made = Disk(image, mounted, options)
    try:
        made.on()
        yield made
    finally:
        if os.path.ismount(mounted):
            end_all(mounted)
            made.off()
        wait_until(lambda: not made.devices(), "the loop device stays")
        image.unlink()


def integrity(database: Path, scratch: Path) -> str:
    """What SQLite says of a copy: `ok`. The original stays as the power cut left it."""
    scratch.mkdir()
    try:
        for suffix in ("", "-wal"):
            source = database.with_name(database.name + suffix)
            if source.exists():
                shutil.copy(source, scratch / source.name)
        with contextlib.closing(sqlite3.connect(scratch / database.name)) as connection:
            rows = connection.execute("PRAGMA integrity_check").fetchall()
            return "; ".join(str(row[0]) for row in rows)
    finally:
        shutil.rmtree(scratch)
