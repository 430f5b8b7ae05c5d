"""Writes the manual pages into a wheel, when it is built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):  # type: ignore[misc]
    """Asks the client of this source tree for its pages; it needs no installed package for that."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._directory = tempfile.mkdtemp(prefix="toban-man-")
        environment = {**os.environ, "PYTHONPATH": os.path.join(self.root, "client")}
        command = [sys.executable, "-m", "toban.cli", "man", "--to", self._directory]
        subprocess.run(command, env=environment, check=True)
        for name in sorted(os.listdir(self._directory)):
            build_data["shared_data"][os.path.join(self._directory, name)] = f"share/man/man1/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self._directory, ignore_errors=True)
