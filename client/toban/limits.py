"""How large things may be. The client checks what it sends, the daemon what it takes; docs/api.md has the table.

Nothing but the standard library: the SDK, the definition format and the daemon share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

MAX_MESSAGE_BYTES: Final = 4 * MIB
"""One message of the API, either way: what a gRPC client takes unless it was told otherwise."""
MAX_PARAMS_BYTES: Final = MIB
"""All parameters of a run or of a schedule together, defaults included."""
MAX_ITEMS: Final = 10_000
"""Items of one `for_each`."""
MAX_ITEMS_BYTES: Final = 4 * MIB
"""All items of one `for_each` together."""
MAX_PAYLOAD_BYTES: Final = 64 * KIB
"""The payload of an event, as JSON text."""
MAX_SOURCE_BYTES: Final = 2 * MIB
"""The text of one definition file."""
MAX_ABOUT_BYTES: Final = 64 * KIB
"""The title, description and labels of a definition together: every list has them."""
MAX_RESULT_BYTES: Final = MIB
"""What a step leaves: its result, and the file of its outputs."""
MAX_SEEN_BYTES: Final = 16 * MIB
"""One field of all instances of a `for_each` step, as the templates of other steps see it."""
MAX_ERROR_CHARS: Final = 4000
"""A reason or an error message that is stored; what is longer is cut."""
MAX_NOTE_CHARS: Final = 1000
"""A text that people send along: the reason of a cancel, the note of an approval."""
MAX_KEY_CHARS: Final = 256
"""A text by which something is found again: a subject, a dedupe key."""
MAX_REQUEST_ID_CHARS: Final = 128

MAX_LISTED_BYTES: Final = 4 * KIB
"""Parameters, an item or a payload in lists and in changes of a run; what is larger is left out there."""
MAX_SHOWN_BYTES: Final = MIB
"""An item in an answer about one run."""

_PER_VALUE: Final = 12


class SizeError(ValueError):
    """Something is larger than it may be; the text says what, and what to do."""


def weight(value: Any, most: int) -> int:
    """The size of plain data in bytes: of each text its UTF-8, and 12 more for each text, number, list and mapping.

    That is no less than it takes up in a message, where short values weigh more than as JSON. Counting ends soon after
    `most` is passed.
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
    """Raises SizeError that names the largest."""
    if weight(params, MAX_PARAMS_BYTES) <= MAX_PARAMS_BYTES:
        return
    largest = max(params, key=lambda name: weight(params[name], MAX_PARAMS_BYTES))
    raise SizeError(
        f"all parameters together may have {shown(MAX_PARAMS_BYTES)}, and they have more (the largest is "
        f"{largest:.40}): put large data into a file and pass its path"
    )


def check_items(items: tuple[Any, ...]) -> None:
    """Raises SizeError."""
    if weight(items, MAX_ITEMS_BYTES) > MAX_ITEMS_BYTES:
        raise SizeError(
            f"all items together may have {shown(MAX_ITEMS_BYTES)}, and they have more: let each name a file"
        )


def check_about(fields: Mapping[str, Any]) -> None:
    """Of a definition. Raises SizeError."""
    about = [fields.get(name) for name in ("title", "description", "labels")]
    if weight(about, MAX_ABOUT_BYTES) > MAX_ABOUT_BYTES:
        raise SizeError(f"title, description and labels together may have {shown(MAX_ABOUT_BYTES)}, and they have more")


def cut(text: str, most: int = MAX_ERROR_CHARS) -> str:
    """The text, or its beginning and end with a note of how much is missing between them."""
    if len(text) <= most:
        return text
    note = f" [… {len(text) - most:,} characters left out …] "
    tail = most // 4
    return text[: most - tail] + note + text[-tail:]


def shown(size: int) -> str:
    """A limit as people read it."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
