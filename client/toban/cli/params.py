"""Parameters of a run from the command line: `-p key=value` and `--params-file`.

Words stay words here: the daemon reads them as the types that the workflow declares, and says what does not fit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from toban.cli.exits import Exit
from toban.cli.failures import Failure
from toban.cli.session import shown


def parse_pairs(given: Sequence[str]) -> dict[str, str]:
    """`key=value` words; of one key the last counts. Raises Failure that names every wrong one."""
    pairs = {}
    wrong = []
    for text in given:
        key, equals, value = text.partition("=")
        if key and equals:
            pairs[key] = value
        else:
            wrong.append(f"{shown(text)}: expected key=value")
    if wrong:
        raise Failure("cannot read the parameters", Exit.USAGE, lines=wrong)
    return pairs


def read_file(path: str) -> dict[str, Any]:
    """A file with one mapping in YAML or JSON; `-` is standard input. Raises Failure."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        raise Failure(
            f"cannot read the parameters in {shown(path)}: {os.strerror(error.errno or 0)}",
            Exit.USAGE,
        ) from None
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(data)
    except (YAMLError, UnicodeError) as error:
        raise Failure(
            f"cannot read the parameters in {shown(path)}: {_what_is_wrong(error)}", Exit.USAGE
        ) from None
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Failure(
            f"cannot read the parameters in {shown(path)}: expected a mapping of names to values",
            Exit.USAGE,
        )
    return {key: _json_value(item) for key, item in value.items()}


def _json_value(value: object) -> object:
    """YAML knows dates; JSON does not."""
    match value:
        case datetime() | date():
            return value.isoformat()
        case dict():
            return {str(key): _json_value(item) for key, item in value.items()}
        case list() | set() | tuple():
            return [_json_value(item) for item in value]
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return value


def _what_is_wrong(error: Exception) -> str:
    """The one line of a YAML error that says it, with its place."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).strip().splitlines()[0]
    return f"{mark.line + 1}:{mark.column + 1}: {problem}" if mark is not None else str(problem)
