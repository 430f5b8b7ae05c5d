"""Progress that steps report: lines such as `::progress 5/20 message`, found in the last part of an attempt file."""

from __future__ import annotations

import re

from toband.domain.run_model import Progress

TAIL = 64 * 1024
"""Bytes at the end of a log that are searched for a line: a report costs the daemon nothing until it is read."""
MESSAGE_MOST = 200
_NUMBER = rb"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
# A line starts after another one, or after a frame header, whose last byte is its kind: 1 or 2 for output.
_LINE = re.compile(rb"[\n\x01\x02]::progress " + _NUMBER + rb"(?:/" + _NUMBER + rb")?(?: ([^\x00-\x1f]*))?\r?\n")
_MARK = b"::progress "


def last_progress(data: bytes) -> Progress | None:
    """The last whole line in bytes of an attempt file."""
    position = data.rfind(_MARK)
    while position > 0:
        if (found := _LINE.match(data, position - 1)) is not None:
            current, total, message = found.groups()
            text = (message or b"").decode(errors="replace").strip()
            return Progress(current=float(current), total=float(total or 0), message=text[:MESSAGE_MOST])
        position = data.rfind(_MARK, 0, position)
    return None
