"""Named points at which a test can make a process fail, before and after each durable write.

Without any, a hit costs one call. `TOBAN_FAILPOINTS` is a comma-separated list of `name=action`, where the action is
`kill` (SIGKILL to this process), `stop` (SIGSTOP) or the name of an errno to raise as OSError. A trailing `@N` limits
it to the Nth hit in this process. Example: `store.after_commit=kill@3,shim.write=ENOSPC`.

Standard library only: the spawner and the shim use it too.
"""

from __future__ import annotations

import errno
import os
import signal

_armed: dict[str, tuple[str, int]] = {}
_hits: dict[str, int] = {}


def arm(text: str) -> None:
    """Replaces all failpoints. Raises ValueError if the text is invalid."""
    found: dict[str, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, action = item.partition("=")
        action, _, nth = action.partition("@")
        if not equals or (action not in ("kill", "stop") and not hasattr(errno, action)):
            raise ValueError(f"invalid failpoint {item!r}: expected name=kill|stop|ERRNO[@N]")
        found[name] = (action, int(nth or 0))
    _armed.clear()
    _hits.clear()
    _armed.update(found)


def armed() -> bool:
    return bool(_armed)


def hit(name: str) -> None:
    """Fails if this point is armed."""
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
