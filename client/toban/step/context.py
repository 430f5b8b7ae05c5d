"""What a step can know of its run, and hand on: read from its environment, whatever language wrote the workflow.

Standard library only, for any Python from 3.8 on: the runner loads this file by its path into interpreters that have
no Toban installed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_KEY_REFUSED = ("=", "<<", "\n", "\r")


class NotInAStepError(RuntimeError):
    """This process was not started by Toban."""


def _setting(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise NotInAStepError(
            f"there is no ${name} here: this works in a step that Toban started"
        ) from None


def params() -> dict[str, Any]:
    """The run's parameters, with their types. Raises NotInAStepError, OSError."""
    with open(_setting("TOBAN_PARAMS"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def context_dir() -> Path:
    """Where the artifacts of the run are kept. Raises NotInAStepError."""
    return Path(_setting("TOBAN_CONTEXT_DIR"))


def set_output(key: str, value: Any) -> None:
    """Hands a value on, as `steps.<id>.outputs.<key>`: text as it is, anything else as JSON; the last one counts.

    Raises NotInAStepError, ValueError for a key that cannot be one, TypeError for a value that is no JSON, OSError.
    """
    if not key.strip() or key != key.strip() or any(part in key for part in _KEY_REFUSED):
        raise ValueError(f"cannot hand on {key!r}: it cannot be the name of an output")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" in text:
        # A line that ends the value, and is none of its own.
        lines = set(text.split("\n"))
        word, number = "END", 0
        while word in lines:
            number += 1
            word = f"END{number}"
        entry = f"{key}<<{word}\n{text}\n{word}\n"
    else:
        entry = f"{key}={text}\n"
    path = _setting("TOBAN_OUTPUT")
    with open(path, "a+b") as file:
        # Somebody may have left the last line without an end.
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                entry = f"\n{entry}"
        file.write(entry.encode(errors="surrogateescape"))


def outputs(**values: Any) -> None:
    """Several at once; see `set_output`."""
    for key, value in values.items():
        set_output(key, value)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def progress(current: float, total: float | None = None, message: str = "") -> None:
    """Says in the log how far the step is."""
    far = _number(current) if total is None else f"{_number(current)}/{_number(total)}"
    print(f"::progress {far} {message}".rstrip(), flush=True)


class Context:
    """What the function of a python step gets that has a parameter `context`."""

    @property
    def params(self) -> dict[str, Any]:
        return params()

    @property
    def config(self) -> dict[str, Any]:
        """The same, by the name that other systems have for it."""
        return params()

    @property
    def inputs(self) -> Mapping[str, Path]:
        """Where the step's inputs are, by the names that they have in its workspace."""
        found = json.loads(os.environ.get("TOBAN_INPUTS") or "{}")
        return {name: Path(os.path.abspath(path)) for name, path in found.items()}

    @property
    def directory(self) -> Path:
        """Where the artifacts of the run are kept."""
        return context_dir()

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "run_id": _setting("TOBAN_RUN_ID"),
            "workflow": _setting("TOBAN_WORKFLOW"),
            "step": _setting("TOBAN_STEP"),
            "attempt": int(os.environ.get("TOBAN_ATTEMPT") or 1),
            "iteration": int(os.environ.get("TOBAN_ITERATION") or 1),
        }

    def output(self, key: str, value: Any) -> None:
        """See `set_output`."""
        set_output(key, value)

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """See `progress`."""
        progress(current, total, message)


def say_class(error: BaseException) -> None:
    """Hands on what an exception says of itself: how it may be treated, and after how long it may be tried again.

    It says so with the attributes `toban_error_class` and `retry_after` (in seconds), whoever defined it.
    """
    kind = getattr(error, "toban_error_class", None)
    kind = getattr(kind, "value", kind)
    if kind is None:
        return
    if kind not in CLASSES:
        print(f"toban_error_class is {kind!r}, not one of {', '.join(CLASSES)}", file=sys.stderr)
        return
    set_output("toban.error_class", kind)
    after = getattr(error, "retry_after", None)
    if isinstance(after, (int, float)) and not isinstance(after, bool) and 0 <= after < 1e9:
        set_output("toban.retry_after", f"{_number(round(after, 3))}s")


CLASSES = ("RETRYABLE_TRANSIENT", "RETRYABLE_RATE_LIMIT", "NON_RETRYABLE", "FATAL")
