"""Parameters of a run: `-p key=value` and `--params-file`.

Values of -p stay text: the daemon converts them to the types that the workflow declares.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown


def parse_pairs(given: Sequence[str]) -> dict[str, str]:
    """Parses `key=value` words; the last one of a key wins. Raises Failure that names every invalid word."""
    pairs = {}
    wrong = []
    for text in given:
        key, equals, value = text.partition("=")
        if not _is_utf8(text):
            wrong.append(f"{shown(text)}: not UTF-8")
        elif key and equals:
            pairs[key] = value
        else:
            wrong.append(f"{shown(text)}: expected key=value")
    if wrong:
        raise Failure("cannot read the parameters", Exit.USAGE, lines=wrong)
    return pairs


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_file(path: str) -> dict[str, Any]:
    """Reads a file with one mapping in YAML or JSON; `-` is standard input. Raises Failure."""
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
    try:
        return _mapping(data)
    except ValueError as error:
        raise Failure(f"cannot read the parameters in {shown(path)}: {error}", Exit.USAGE) from None


def _mapping(data: bytes) -> dict[str, Any]:
    """The only document of a file, read like a definition. Raises ValueError."""
    from toban.definition.source.yaml_source import read_documents

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    documents, stopped = read_documents(text)
    for problem in (*stopped, *(each for found in documents for each in found.problems)):
        raise ValueError(f"{problem.line + 1}:{problem.column + 1}: {problem.message}")
    roots = [found.root for found in documents if found.root is not None]
    if len(roots) > 1:
        raise ValueError(f"found {len(roots)} documents, expected one")
    value = roots[0].plain() if roots else {}
    if value is None:
        return {}
    names = [entry.key.value for root in roots for entry in root.entries.values()]
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected a mapping of names to values")
    return value
