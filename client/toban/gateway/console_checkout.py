"""Builds the console of a checkout, which has its sources instead of its files. A wheel has the files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from toban.gateway.console_files import STATIC

_SCRIPT: Final = Path(__file__).parents[3] / "scripts" / "build-console"


def build_console() -> bool:
    """Builds the console if this is a checkout and its sources have changed; whether there is one then.

    The script says on standard error what it does, and why it cannot: then an earlier one is served, if there is one.
    """
    if os.name == "posix" and _SCRIPT.is_file() and (_SCRIPT.parents[1] / "client" / "console").is_dir():
        # Its output is none of ours: our own is read by scripts.
        subprocess.run([_SCRIPT], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return has_console()


def has_console() -> bool:
    return (STATIC / "index.html").is_file()
