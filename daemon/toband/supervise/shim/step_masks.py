"""What a shim masks of a step that was given secrets: its output, its results, and the texts of its record.

Standard library only: the shim uses it. A shim whose step has no secrets never imports the masker.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toband.masker import MaskedStream, Masker


def masker_of(boot: dict[str, Any]) -> Masker | None:
    """None if nothing is to be masked."""
    material = boot.get("secrets")
    if not material or not material["masked"]:
        return None
    from toband.masker import Masker

    return Masker(material["masked"])


class StepMasks:
    """The masker of one attempt, and a stream for each of its outputs, by their kind."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._streams: dict[int, MaskedStream] = {}

    def feed(self, kind: int, data: bytes) -> bytes:
        """What can be written of it now; it may be nothing."""
        if kind not in self._streams:
            self._streams[kind] = self._masker.stream()
        return self._streams[kind].feed(data)

    def end(self, kind: int) -> bytes:
        """What was held back, when no more comes."""
        stream = self._streams.pop(kind, None)
        return b"" if stream is None else stream.end()

    def mask_record(self, record: dict[str, Any], boot: dict[str, Any]) -> None:
        """Masks an end record, and removes the files from which its values come: they have what the step wrote."""
        record["error"] = self._masker.mask_text(record["error"])
        if "output" in record:
            record["output"] = self._masker.mask_text(record["output"])
        if "result" in record:
            record["result"] = self._result(record["result"])
        for key in ("output", "result"):
            if boot.get(key):
                with contextlib.suppress(OSError):
                    os.unlink(boot[key])

    def _result(self, text: str) -> str:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self._masker.mask_text(text)
        masked = self._masker.mask_value(value)
        return text if masked == value else json.dumps(masked)
