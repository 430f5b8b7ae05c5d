"""File systems of a test's own: small ones that can be filled, and read-only ones. They are gone afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1024 * 1024


def _mount(*arguments: str) -> None:
    """Skips the test where nothing can be mounted."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, check=False, timeout=30)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.decode().strip()}")


def _unmount(path: Path) -> None:
    done = subprocess.run(["umount", path], capture_output=True, check=False, timeout=30)
    if done.returncode != 0:
        # Somebody still uses it: it goes with the last of them, but the test has not cleaned up.
        subprocess.run(["umount", "--lazy", path], check=True, timeout=30)
        raise AssertionError(f"cannot unmount {path}: {done.stderr.decode().strip()}")


@contextmanager
def small_disk(path: Path, size: int = 64 * MIB, inodes: int | None = None) -> Iterator[Path]:
    """A file system of that size there."""
    path.mkdir()
    options = f"size={size},mode=750" + (f",nr_inodes={inodes}" if inodes else "")
    _mount("-t", "tmpfs", "-o", options, "toban-test", str(path))
    try:
        yield path
    finally:
        _unmount(path)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Whoever opens something below finds a read-only file system; what is open already stays as it is."""
    _mount("--bind", str(path), str(path))
    try:
        _mount("-o", "remount,bind,ro", str(path))
        yield
    finally:
        _unmount(path)


def fill(path: Path, leave: int = 0) -> None:
    """Takes all of the space there is for a file of that name, but for so many bytes."""
    with path.open("wb", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(path, max(0, path.stat().st_size - leave))


def fill_inodes(directory: Path) -> None:
    directory.mkdir()
    with contextlib.suppress(OSError):
        for number in range(1_000_000):
            (directory / str(number)).touch()
