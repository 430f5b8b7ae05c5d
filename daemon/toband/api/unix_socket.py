"""Unix sockets of the daemon: their mode and group, and what a dead daemon left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class ListenError(Exception):
    """The daemon cannot listen on an address; the text says why."""


def file_identity(path: str) -> tuple[int, int] | None:
    """Identity of a file; None if it does not exist or cannot be read."""
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


@contextmanager
def made_with(path: str, mode: int, group: str) -> Iterator[None]:
    """Gives the socket that is bound within the context its mode and group; before, it is its owner's only.

    Raises ListenError.
    """
    if sys.platform == "win32":
        raise ListenError(f"cannot listen on unix://{path}: unix sockets are not supported on Windows")
    before = os.umask(0o777 & ~(mode & 0o700))
    try:
        yield
    finally:
        os.umask(before)
    try:
        if group:
            shutil.chown(path, group=int(group) if group.isdigit() else group)
        os.chmod(path, mode)
    except LookupError:
        raise ListenError(f"cannot listen on unix://{path}: there is no group {group!r}") from None
    except OSError as error:
        what = f"give it the group {group!r}" if group else f"give it the mode {mode:04o}"
        raise ListenError(f"cannot listen on unix://{path}: cannot {what}: {error.strerror}") from error


def clear_stale(path: str) -> None:
    """Removes the socket of a dead daemon, and does not disturb a live one. Raises ListenError."""
    if sys.platform == "win32":
        return
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise ListenError(f"cannot listen on unix://{path}: directory {directory} does not exist")
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ListenError(f"cannot listen on unix://{path}: the path exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except (ConnectionRefusedError, TimeoutError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except OSError as error:
            raise ListenError(f"cannot listen on unix://{path}: {error.strerror}") from error
    raise ListenError(f"cannot listen on unix://{path}: another process serves it")
