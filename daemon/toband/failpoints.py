"""Named places where a test may make a process fail, on both sides of what must be durable.

Unset, a hit costs one call. `TOBAN_FAILPOINTS` is a comma-separated list of `name=action`, where the action is `kill`
(SIGKILL to this very process), `stop` (SIGSTOP) or the name of an errno to raise as OSError, and `@N` behind it means:
only at the Nth hit in this process. Example: `store.after_commit=kill@3,shim.write=ENOSPC`.

Standard library only: the spawner and the shim use it too.
"""

from __future__ import annotations

import errno
import os
import signal

_armed: dict[str, tuple[str, int]] = {}
_hits: dict[str, int] = {}


def arm(text: str) -> None:
    """Replaces what is armed. Raises ValueError for text that does not parse."""
    found: dict[str, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, action = item.partition("=")
        action, _, nth = action.partition("@")
        if not equals or (action not in ("kill", "stop") and not hasattr(errno, action)):
            raise ValueError(f"cannot read failpoint {item!r}: expected name=kill|stop|ERRNO[@N]")
        found[name] = (action, int(nth or 0))
    _armed.clear()
    _hits.clear()
    _armed.update(found)


def armed() -> bool:
    return bool(_armed)


def hit(name: str) -> None:
    """Fails here if a test asked for it."""
    if not _armed:
        return
    action, nth = _armed.get(name, ("", 0))
    if not action:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if nth and _hits[name] != nth:
        return
    if action == "kill":
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    elif action == "stop":
        os.kill(os.getpid(), getattr(signal, "SIGSTOP", signal.SIGTERM))
    else:
        code: int = getattr(errno, action)
        raise OSError(code, f"{os.strerror(code)} (failpoint {name})")


arm(os.environ.get("TOBAN_FAILPOINTS", ""))
