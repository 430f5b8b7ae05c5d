"""Environment variables from files: read when a step starts, by its supervisor, or by the step's own user.

The values never leave this process and the step: neither the daemon nor its database has them. Error texts say where
a problem is, and never what a file contains.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

if sys.platform != "win32":
    from toband.supervise.shim import trusted_path

MOST_BYTES = 256 * 1024
LONGEST_VARIABLE = 128 * 1024 - 1
"""Bytes of one variable: the limit of Linux, without its NUL."""
RESERVED = "TOBAN_"

_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_ENDS = re.compile(r"[ \t]*(?:#.*)?")
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*")
_ESCAPE = re.compile(r"\\([nrt\"\\$])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class EnvFileError(ValueError):
    """A file that is missing or unreadable, or has an error; the text says which and where."""


def environment(boot: Mapping[str, Any], *, guarded: bool) -> dict[str, str]:
    """The environment of a step with the variables of its files. `guarded`: as in `trusted_path`.

    Raises EnvFileError, and OSError if the system is short of something.
    """
    env: dict[str, str] = boot["env"]
    given = boot.get("env_files")
    if not given:
        return env
    found: dict[str, str] = {}
    for path, optional in given["files"]:
        data = _read(path, guarded=guarded)
        if data is not None:
            variables = parse(data, path)
            _check_names(variables, path, given)
            found |= variables
        elif not optional:
            raise EnvFileError(f"there is no env_file {path}; create it, or mark it as optional")
    # Windows does not distinguish `Path` and `PATH`.
    same = str.upper if sys.platform == "win32" else str
    kept = {same(name) for name in env} - {same(name) for name in given["replaced"]}
    return env | {name: value for name, value in found.items() if same(name) not in kept}


def _check_names(names: Collection[str], path: str, given: Mapping[str, Any]) -> None:
    """Raises EnvFileError for one that definitions may not set either."""
    allowed, denied = given.get("allowed"), given.get("denied") or ()
    if allowed is None and not denied:
        return
    from fnmatch import fnmatchcase

    for name in names:
        key = "denied" if any(fnmatchcase(name, each) for each in denied) else ""
        if allowed is not None and not any(fnmatchcase(name, each) for each in allowed):
            key = "names"
        if key:
            raise EnvFileError(
                f"the env_file {path} may not set {name}: `steps.environment_{key}` in the daemon's configuration "
                "does not allow it"
            )


def parse(data: bytes, path: str) -> dict[str, str]:
    """The variables of a file in dotenv format; of several with one name the last counts. Raises EnvFileError."""
    try:
        # Not with another codec: as the step's user, this process may be unable to load its module.
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise EnvFileError(f"the env_file {path} is not UTF-8") from None
    if "\0" in text:
        raise EnvFileError(f"the env_file {path} contains a NUL character")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    found: dict[str, str] = {}
    number = 0
    while number < len(lines):
        first = number
        line = lines[number]
        number += 1
        if not line.strip(" \t") or line.lstrip(" \t").startswith("#"):
            continue
        begun = _LINE.match(line)
        if begun is None:
            raise _wrong(path, first, "expected NAME=VALUE")
        name, rest = begun[1], line[begun.end() :]
        if name.upper().startswith(RESERVED):
            raise _wrong(path, first, f"names that begin with {RESERVED} cannot be set")
        if rest[:1] in ("'", '"'):
            value, number = _quoted(path, lines, first, rest)
        else:
            value = _COMMENT.sub("", rest).rstrip(" \t")
        if len(name) + 1 + len(value.encode()) > LONGEST_VARIABLE:
            raise _wrong(path, first, f"{name} has more than {LONGEST_VARIABLE:,} bytes")
        found[name] = value
    return found


def _quoted(path: str, lines: Sequence[str], first: int, rest: str) -> tuple[str, int]:
    """The value in quotes, which may go over several lines, and the number of the next line."""
    quote, rest, number = rest[0], rest[1:], first + 1
    value = ""
    while True:
        end = _end_of(quote, rest)
        if end >= 0:
            break
        if number == len(lines):
            raise _wrong(path, first, "the closing quote is missing")
        value += rest + "\n"
        rest = lines[number]
        number += 1
    value += rest[:end]
    if _ENDS.fullmatch(rest, end + 1) is None:
        raise _wrong(path, number - 1, "after the closing quote only a comment may follow")
    if quote == '"':
        value = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value)
    return value, number


def _end_of(quote: str, text: str) -> int:
    """Where the closing quote is; -1 if it is not in this line. In double quotes a backslash hides a quote."""
    place = 0
    while place < len(text):
        if text[place] == "\\" and quote == '"':
            place += 1
        elif text[place] == quote:
            return place
        place += 1
    return -1


def _wrong(path: str, index: int, message: str) -> EnvFileError:
    return EnvFileError(f"the env_file {path}, line {index + 1}: {message}")


def _read(path: str, *, guarded: bool) -> bytes | None:
    """None if there is no such file."""
    try:
        fd = _open(path, guarded=guarded)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise EnvFileError(f"the env_file {path} is not a file")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(MOST_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            raise
        raise EnvFileError(f"cannot read the env_file {path}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise EnvFileError(f"the env_file {path} has more than {MOST_BYTES // 1024} KiB")
    return data


if sys.platform == "win32":

    def _open(path: str, *, guarded: bool) -> int:
        return os.open(path, os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT)

else:

    def _open(path: str, *, guarded: bool) -> int:
        return trusted_path.open_file(path, guarded=guarded)
