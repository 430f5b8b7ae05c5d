"""Runs the part of the daemon's package that works while no daemon runs: for restores and moves of the database."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.syntax import ExitCommand

# The client package includes toband, but not its dependencies.
_NEEDED: Final = ("toband", "sqlalchemy", "alembic", "structlog")


def run_offline(arguments: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    """What the work reports at its end. It shows its progress and its errors itself. Raises Failure, ExitCommand."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(
            f"cannot work on a state directory: {', '.join(missing)} is not installed",
            Exit.UNREACHABLE,
            hint="pip install 'toban[daemon]'",
        )
    # The directory of this process must not change what the interpreter imports.
    program = [sys.executable, "-P", "-m", "toband.app.offline", *(["--quiet"] if quiet else []), *arguments]
    done = subprocess.run(program, stdout=subprocess.PIPE, env=dict(os.environ), check=False)
    if done.returncode != 0:
        raise ExitCommand(Exit.REFUSED if done.returncode == 1 else Exit.INTERNAL)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
