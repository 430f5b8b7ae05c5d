"""The payload option of events: `-d JSON`, `-d @file`, `-d @-`."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, BinaryIO, Final, NoReturn

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown
from toban.cli.syntax import Option

DataOption = Annotated[
    str,
    Option(
        "-d",
        "--data",
        metavar="JSON|@FILE",
        help="Payload as JSON, @FILE, or @- for standard input (default: {}).",
        show_default=False,
    ),
]

# The daemon accepts much less.
_MOST: Final = 1024 * 1024


def read_payload(given: str, what: str) -> str:
    """The payload as JSON; empty if none was given. Raises Failure to do `what`."""
    if not given:
        return ""
    if given.startswith("@"):
        place = given[1:]
        return _parse(_read(place, what), what, f"-d {shown(given)}", hint="")
    hint = """quote it for the shell: -d '{"id": 7}'"""
    return _parse(given.encode("utf-8", "surrogateescape"), what, "-d", hint=hint)


def _read(path: str, what: str) -> bytes:
    try:
        if path == "-":
            return _some(sys.stdin.buffer)
        with open(path, "rb") as file:
            return _some(file)
    except (OSError, ValueError) as error:
        said = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot {what}: -d @{shown(path)}: {said}", Exit.USAGE) from None


def _some(file: BinaryIO) -> bytes:
    return file.read(_MOST + 1)


def _parse(data: bytes, what: str, place: str, *, hint: str) -> str:
    from toban.sdk import InvalidArgument
    from toban.sdk.message_values import to_json

    if len(data) > _MOST:
        raise Failure(
            f"cannot {what}: {place}: must not exceed 64 KiB",
            Exit.USAGE,
            hint="put large data into a file and pass its path",
        )
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_json)
        return to_json(value, "payload")
    except json.JSONDecodeError as error:
        said = f"{error.lineno}:{error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    except UnicodeDecodeError:
        said = "not UTF-8"
    except RecursionError:
        said = "nested too deeply"
    except ValueError as error:
        said = str(error)
    except InvalidArgument as error:
        # Valid JSON without a value, such as 1e999: quotes would not help.
        said, hint = error.violations[0].description, ""
    raise Failure(f"cannot {what}: {place}: {said}", Exit.USAGE, hint=hint)


def _no_json(word: str) -> NoReturn:
    raise ValueError(f"JSON has no {word}")
