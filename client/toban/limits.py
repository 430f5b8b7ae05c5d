"""Size limits. The client checks what it sends, the daemon what it receives; docs/api.md lists them.

Standard library only: the SDK, the definition format and the daemon share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toban.quantity_text import size_text

KIB: Final = 1024
MIB: Final = 1024 * KIB

MAX_MESSAGE_BYTES: Final = 4 * MIB
"""One message of the API, in either direction: the default limit of gRPC clients."""
MAX_PARAMS_BYTES: Final = MIB
"""All parameters of a run or of a schedule, defaults included."""
MAX_ITEMS: Final = 10_000
"""Items of one `for_each`."""
MAX_ITEMS_BYTES: Final = 4 * MIB
"""All items of one `for_each`."""
MAX_PAYLOAD_BYTES: Final = 64 * KIB
"""The payload of an event, as JSON text."""
MAX_SOURCE_BYTES: Final = 2 * MIB
"""The text of one definition file."""
MAX_APPLIED: Final = 1000
"""Definitions of one ApplyDefinitions call, which are stored in one transaction."""
MAX_ABOUT_BYTES: Final = 64 * KIB
"""The title, description and labels of a definition, which lists include."""
MAX_TITLE_CHARS: Final = 200
"""The title of a step. Messages about runs have no more of the titles of workflows and steps."""
MAX_RESULT_BYTES: Final = MIB
"""The result of a step, and its outputs file."""
MAX_SEEN_BYTES: Final = 16 * MIB
"""One field of all instances of a `for_each` step, as templates of other steps read it."""
MAX_ERROR_CHARS: Final = 4000
"""A stored reason or error message; longer ones are cut."""
MAX_NOTE_CHARS: Final = 1000
"""A text from a person: the reason of a cancel, the note of an approval."""
MAX_KEY_CHARS: Final = 256
"""A lookup key: a subject, a dedupe key."""
MAX_REQUEST_ID_CHARS: Final = 128
MIN_SECRET_CHARS: Final = 6
"""A shorter secret would be found, and masked, in every other line of a log."""
MAX_SECRET_BYTES: Final = 64 * KIB
MAX_RUN_LABELS: Final = 32
MAX_LABEL_KEY_CHARS: Final = 64

MAX_LISTED_BYTES: Final = 4 * KIB
"""Parameters, an item or a payload in lists and in changes of a run, which omit larger ones."""
MAX_SHOWN_BYTES: Final = MIB
"""An item in the response about one run."""

_PER_VALUE: Final = 12


class SizeError(ValueError):
    """A value exceeds its limit; the text says which one, and what to do."""


def weight(value: Any, most: int) -> int:
    """The size of plain data in bytes: the UTF-8 of each text, and 12 for each text, number, list and mapping.

    That is at least its size in a message, where short values take more than in JSON. Counting stops soon after `most`.
    """
    total = 0
    left = [value]
    while left and total <= most:
        found = left.pop()
        total += _PER_VALUE
        if isinstance(found, str):
            total += len(found) if found.isascii() else len(found.encode(errors="replace"))
        elif isinstance(found, Mapping):
            left.extend(found)
            left.extend(found.values())
        elif isinstance(found, (list, tuple)):
            left.extend(found)
    return total


def check_params(params: Mapping[str, Any]) -> None:
    """Raises SizeError that names the largest parameter."""
    if weight(params, MAX_PARAMS_BYTES) <= MAX_PARAMS_BYTES:
        return
    largest = max(params, key=lambda name: weight(params[name], MAX_PARAMS_BYTES))
    raise SizeError(
        f"all parameters together must not exceed {size_text(MAX_PARAMS_BYTES)} (the largest is {largest:.40}): "
        "put large data into a file and pass its path"
    )


def check_items(items: tuple[Any, ...]) -> None:
    """Raises SizeError."""
    if weight(items, MAX_ITEMS_BYTES) > MAX_ITEMS_BYTES:
        raise SizeError(
            f"all items together must not exceed {size_text(MAX_ITEMS_BYTES)}: put large data into files and list paths"
        )


def check_about(fields: Mapping[str, Any]) -> None:
    """Checks the title, description and labels of a definition. Raises SizeError."""
    about = [fields.get(name) for name in ("title", "description", "labels")]
    if weight(about, MAX_ABOUT_BYTES) > MAX_ABOUT_BYTES:
        raise SizeError(f"title, description and labels together must not exceed {size_text(MAX_ABOUT_BYTES)}")


def cut(text: str, most: int = MAX_ERROR_CHARS) -> str:
    """The text, or its beginning and end with a note of how much was left out."""
    if len(text) <= most:
        return text
    note = f" [… {len(text) - most:,} characters left out …] "
    tail = most // 4
    return text[: most - tail] + note + text[-tail:]
