"""The payload of an event on the command line: `-d JSON`, `-d @file`, `-d @-`."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, BinaryIO, Final, NoReturn

import typer

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown

DataOption = Annotated[
    str,
    typer.Option(
        "-d",
        "--data",
        metavar="JSON|@FILE",
        help="The payload: JSON, a file with it, or @- for standard input. By default {}.",
        show_default=False,
    ),
]

# The daemon takes much less; more is not even worth being sent.
_MOST: Final = 1024 * 1024


def read_payload(given: str, what: str) -> str:
    """JSON, which may be null; empty if nothing was given. Raises Failure to do `what`."""
    if not given:
        return ""
    if given.startswith("@"):
        place = given[1:]
        return _parse(_read(place, what), what, f"-d {shown(given)}", hint="")
    hint = """a shell wants quotes around it: -d '{"id": 7}'"""
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
            f"cannot {what}: {place}: it is longer than 1 MiB",
            Exit.USAGE,
            hint="a payload has at most 64 KiB: let it name where the rest is",
        )
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_json)
        return to_json(value, "payload")
    except json.JSONDecodeError as error:
        said = f"{error.lineno}:{error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    except UnicodeDecodeError:
        said = "it is not UTF-8"
    except RecursionError:
        said = "it is nested too deep"
    except ValueError as error:
        said = str(error)
    except InvalidArgument as error:
        # JSON on paper, such as 1e999, that has no value; quotes would not help.
        said, hint = error.violations[0].description, ""
    raise Failure(f"cannot {what}: {place}: {said}", Exit.USAGE, hint=hint)


def _no_json(word: str) -> NoReturn:
    raise ValueError(f"JSON has no {word}")
