"""Paths of a run's files, below `STATE_DIR/runs`.

<run id>/attempts/<step>.<attempt>.<token>.log   claim, log and end record of one process
<run id>/attempts/….out, ….result                $TOBAN_OUTPUT of the step, return value of a python step
<run id>/attempts/….values                       both, as parsed by the daemon, if they are large
<run id>/params.json                             $TOBAN_PARAMS
<run id>/event.json                              $TOBAN_EVENT, if an event started the run
<run id>/context/                                $TOBAN_CONTEXT_DIR
<run id>/work/                                   the run's own directory: the default workspace of steps
.claims/<token>                                  a second name of a log, until the end of its attempt is in the database
.secrets/<token>                                 the secret files of a live attempt, or a link to them in memory
.logs-full                                       exists while all logs together have reached their limit

`STATE_DIR/placed` records the inputs that were placed in directories other than the run's own.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toban.safe_text import json_text
from toband.domain.attempt_model import Attempt
from toband.supervise.shim.trusted_path import ForbiddenLocationError, locate

_DEVICE = re.compile("con|prn|aux|nul|(com|lpt)[0-9]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RunFiles:
    root: str

    def run(self, run_id: str) -> str:
        return os.path.join(self.root, run_id)

    def work(self, run_id: str) -> str:
        return os.path.join(self.root, run_id, "work")

    def context(self, run_id: str) -> str:
        return os.path.join(self.root, run_id, "context")

    def params(self, run_id: str) -> str:
        return os.path.join(self.root, run_id, "params.json")

    def event(self, run_id: str) -> str:
        return os.path.join(self.root, run_id, "event.json")

    def attempts(self, run_id: str) -> str:
        return os.path.join(self.root, run_id, "attempts")

    def log_name(self, attempt: Attempt) -> str:
        return f"{_safe(attempt.step)}.{attempt.number}.{attempt.token[:8]}.log"

    def log(self, attempt: Attempt) -> str:
        return os.path.join(self.attempts(attempt.run_id), self.log_name(attempt))

    def output(self, attempt: Attempt) -> str:
        return self.log(attempt).removesuffix(".log") + ".out"

    def result(self, attempt: Attempt) -> str:
        return self.log(attempt).removesuffix(".log") + ".result"

    def values(self, attempt: Attempt) -> str:
        return self.log(attempt).removesuffix(".log") + ".values"

    @property
    def claims(self) -> str:
        return os.path.join(self.root, ".claims")

    def claim(self, attempt: Attempt) -> str:
        """The second name of its log."""
        return os.path.join(self.claims, attempt.token)

    @property
    def secrets(self) -> str:
        return os.path.join(self.root, ".secrets")

    def secret_files(self, attempt: Attempt) -> str:
        """The directory of its secret files, or a link to it."""
        return os.path.join(self.secrets, attempt.token)

    @property
    def placed(self) -> str:
        return os.path.join(os.path.dirname(self.root), "placed")

    @property
    def logs_full(self) -> str:
        return f"{self.root}/.logs-full"

    def refusal(self, run_id: str, path: str, *, stores: bool = False) -> str:
        """Why steps of a run may not work in a directory, or with `stores` keep artifacts there; empty if they may.

        Checks the resolved path. Unrelated errors are left to the code that opens it.
        """
        try:
            real = locate(path)
        except ForbiddenLocationError as error:
            return str(error.strerror)
        except (OSError, ValueError):
            return ""
        state = _real(os.path.dirname(self.root))
        if stores and real != state and _within(state, real):
            # The names of steps and outputs would lead into it.
            return f"{path} contains the daemon's state directory; use a directory beside it"
        if not _within(real, state):
            return ""
        own = os.path.join(state, os.path.basename(self.root), run_id)
        if run_id and _within(real, own) and not _within(real, os.path.join(own, "attempts")):
            return ""
        return (
            f"{path} is in the daemon's state directory, and not in the run's own; "
            "use {{ run.dir }}, or a directory elsewhere"
        )

    def resolved(self, path: str) -> str:
        """Where a path leads; itself, if that cannot be known: opening it then fails."""
        try:
            return locate(path)
        except (OSError, ValueError):
            return path

    def reach(self, run_id: str) -> dict[str, Any]:
        """The paths that a step of another user must access, and how. Only root can open the lock, a directory."""
        return {
            "lock": self.root,
            "pass": [
                os.path.dirname(self.root),
                self.root,
                self.run(run_id),
                self.attempts(run_id),
            ],
            "read": [self.params(run_id), *filter(os.path.exists, (self.event(run_id),))],
            "write": [self.work(run_id), self.context(run_id)],
        }

    def prepare(self, run_id: str, params: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> None:
        """Creates a run's directories durably before anything is started in them. Raises OSError."""
        own = self.run(run_id), self.attempts(run_id), self.work(run_id), self.context(run_id)
        for path in own:
            os.makedirs(path, mode=0o700, exist_ok=True)
        _keep_others_off(self.context(run_id))
        _write_json(self.params(run_id), params)
        if event is not None:
            _write_json(self.event(run_id), event)
        for path in (self.run(run_id), self.root):
            sync_directory(path)


def _write_json(path: str, value: Mapping[str, Any]) -> None:
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8", opener=private) as file:
        file.write(json_text(dict(value)))
    os.replace(new, path)


@cache
def _real(path: str) -> str:
    """The resolved path, cached: the state directory does not move while a daemon runs."""
    return os.path.realpath(path)


def _within(path: str, directory: str) -> bool:
    path, directory = os.path.normcase(path), os.path.normcase(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _safe(step: str) -> str:
    """`build[3].check` becomes `build.3.check`: shells treat brackets as a pattern. Windows treats a file `con.1.log`
    as the console, in any directory.
    """
    name, dot, rest = step.replace("[", ".").replace("]", "").partition(".")
    if sys.platform == "win32" and _DEVICE.fullmatch(name):
        name = f"{name}-"
    return f"{name}{dot}{rest}"


def _keep_others_off(path: str) -> None:
    """Sets the sticky bit: steps of other users may create entries, but not rename or remove those of others.

    Only once: setting the mode of a directory with an access list changes the list.
    """
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if sys.platform != "win32" and not mode & stat.S_ISVTX:
        os.chmod(path, mode | stat.S_ISVTX)


def private(path: str, flags: int) -> int:
    """An opener for files that only their owner may read."""
    return os.open(path, flags, 0o600)


def sync_directory(path: str) -> None:
    if sys.platform == "win32":
        return  # Windows cannot flush a directory; NTFS journals names
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
