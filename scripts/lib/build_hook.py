"""What a wheel and an sdist contain beside the sources: the built web console, and in a wheel the manual pages."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):  # type: ignore[misc]
    """An editable installation gets neither."""

    _directory = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, os.path.join(self.root, "scripts", "lib"))
        from console_build import build
        from man_pages import write_man_pages

        console = build()
        if not (console / "index.html").is_file():
            raise RuntimeError(f"cannot build Toban without its web console: {console} has no index.html")
        if self.target_name == "wheel":
            self._directory = tempfile.mkdtemp(prefix="toban-man-")
            for name in write_man_pages(self.root, self._directory):
                build_data["shared_data"][os.path.join(self._directory, name)] = f"share/man/man1/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
