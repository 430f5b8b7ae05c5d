"""Builds the console of a checkout, which has its sources instead of its files. A wheel has the files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from toban.gateway.console_files import STATIC

_SCRIPT: Final = Path(__file__).parents[3] / "scripts" / "build-console"


def build_console() -> bool:
    """Builds the console if this is a checkout and its sources have changed; the script says on standard error what it
    does. False if it cannot be built: then an earlier one, or the API alone, is served."""
    if os.name != "posix" or not (_SCRIPT.is_file() and (_SCRIPT.parents[1] / "client" / "console").is_dir()):
        return (STATIC / "index.html").is_file()
    return subprocess.run([_SCRIPT], stdin=subprocess.DEVNULL, check=False).returncode == 0
