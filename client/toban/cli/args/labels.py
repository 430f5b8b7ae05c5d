"""The label option of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown
from toban.cli.syntax import Option

LabelOption = Annotated[
    list[str] | None,
    Option("--label", "-l", metavar="KEY=VALUE", help="Only those with this label; may be repeated."),
]


def parse_labels(given: Sequence[str], what: str) -> dict[str, str]:
    """Parses `key=value` words. Raises Failure to do `what`."""
    labels = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Failure(f"cannot {what}: the label {shown(text)!r} is not KEY=VALUE", Exit.USAGE)
        labels[key] = value
    return labels
