"""Writes the manual pages, for a wheel."""

from __future__ import annotations

import os
import subprocess
import sys


def write_man_pages(root: str, directory: str) -> list[str]:
    """Asks the client of a source tree for its pages; it needs no installed package for that. Returns their names."""
    environment = {**os.environ, "PYTHONPATH": os.path.join(root, "client")}
    subprocess.run([sys.executable, "-m", "toban.cli", "man", "--to", directory], env=environment, check=True)
    return sorted(os.listdir(directory))
