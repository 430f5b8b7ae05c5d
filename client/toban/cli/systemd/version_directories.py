"""Virtual environments side by side, one for each version of the daemon: steps of an older one keep what they run."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.systemd.environment_copy import EnvironmentCopy, identity_of
from toban.cli.systemd.managed_files import failures
from toban.cli.systemd.service_layout import ServiceLayout

_SCRIPT: Final = """\
#!{python}
import sys

from {module} import main

sys.exit(main())
"""
_PROGRAMS: Final = {"toban": "toban.cli", "toband": "toband.__main__"}
# Seconds: packages may be fetched and compiled.
_PIP: Final = 1800.0
_FACTS: Final = "import json, sys; print(json.dumps([*sys.version_info[:2], sys.implementation.name]))"
# The packages of an environment, without an import of them.
_CONTENTS: Final = """\
import json, os, re
from importlib.metadata import distributions
from importlib.util import find_spec
print(json.dumps({
    "versions": {re.sub("[-_.]+", "-", each.metadata["Name"]).lower(): each.version for each in distributions()},
    "packages": {name: os.path.dirname(find_spec(name).origin) for name in ("toban", "toband")},
}))
"""
_SWITCHED_OFF: Final = ".unused-since"


class VersionDirectories:
    """The directories below `versions` of a layout."""

    def __init__(self, layout: ServiceLayout) -> None:
        self._layout = layout

    def own(self) -> str:
        """The directory that this program itself runs from; empty if it is not one of these."""
        prefix = os.path.realpath(sys.prefix)
        return prefix if os.path.dirname(prefix) == os.path.realpath(self._layout.versions) else ""

    def path_of(self, version: str, identity: str) -> str:
        return f"{self._layout.versions}/{version}-{identity}"

    def copy(self, source: EnvironmentCopy, python: str) -> str:
        """A version made of the environment that this program runs in. Raises Failure."""
        final = self.path_of(source.version, source.identity())
        if not os.path.isdir(final):
            new = self._begin(python)
            with failures(new):
                source.copy_to(_site_packages(new), with_toban=True)
                self._finish(new, final)
        return final

    def install(self, source: EnvironmentCopy, python: str, wheel: str, find_links: str) -> str:
        """A version made of a wheel, with packages of this environment as far as they fit it. Raises Failure."""
        new = self._begin(python)
        with failures(new):
            source.copy_to(_site_packages(new), with_toban=False)
            _run_pip(f"{new}/bin/python", [f"{os.path.abspath(wheel)}[{source.extras}]"], find_links)
            contents = contents_of(new)
            final = self.path_of(contents["versions"]["toban"], identity_of(contents["packages"], contents["versions"]))
            if os.path.isdir(final):
                shutil.rmtree(new)
            else:
                self._finish(new, final)
        return final

    def switched_off(self, directory: str) -> None:
        """Notes since when no daemon is started from a directory."""
        if os.path.dirname(directory) == self._layout.versions:
            with failures(directory), open(f"{directory}/{_SWITCHED_OFF}", "w", encoding="utf-8"):
                pass

    def unused(self, kept: Sequence[str], oldest_process: float) -> list[str]:
        """Directories that nothing uses: not to be kept, and left before the oldest process of the service began."""
        found = []
        try:
            names = sorted(os.listdir(self._layout.versions))
        except FileNotFoundError:
            return []
        for name in names:
            path = f"{self._layout.versions}/{name}"
            if name.startswith(".") or path in kept:
                continue
            try:
                since = os.stat(f"{path}/{_SWITCHED_OFF}").st_mtime
            except OSError:
                # It was never used: its installation was not finished.
                since = 0.0
            if since < oldest_process:
                found.append(path)
        return found

    def _begin(self, python: str) -> str:
        """An empty virtual environment, whose place and name change when it is finished. Raises Failure."""
        new = f"{self._layout.versions}/.new"
        with failures(new):
            shutil.rmtree(new, ignore_errors=True)
            os.makedirs(_site_packages(new), mode=0o755)
            os.makedirs(f"{new}/bin", mode=0o755)
            for name in ("python", "python3"):
                os.symlink(python, f"{new}/bin/{name}")
            with open(f"{new}/pyvenv.cfg", "w", encoding="utf-8") as file:
                file.write(f"home = {os.path.dirname(python)}\ninclude-system-site-packages = false\n")
        return new

    def _finish(self, new: str, final: str) -> None:
        """Raises OSError."""
        for name in os.listdir(f"{new}/bin"):
            if not name.startswith("python"):
                os.unlink(f"{new}/bin/{name}")
        for name, module in _PROGRAMS.items():
            path = f"{new}/bin/{name}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(_SCRIPT.format(python=f"{final}/bin/python", module=module))
            os.chmod(path, 0o755)  # noqa: S103 - a program, for every user
        # Its user may not write there, so every start would compile it again. The other packages come compiled.
        site = _site_packages(new)
        _run_python(
            f"{new}/bin/python", "-m", "compileall", "-q", "-s", new, "-p", final, f"{site}/toban", f"{site}/toband"
        )
        os.rename(new, final)


def interpreter(layout: ServiceLayout, asked: str) -> str:
    """A Python of the same version as this one, which the user of the service can reach. Raises Failure."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = getattr(sys, "_base_executable", "") or sys.executable
    candidates = [asked] if asked else [own, f"/usr/bin/{name}", f"/usr/local/bin/{name}"]
    reasons = []
    for each in candidates:
        reason = _unusable(each, closed=not layout.user)
        if not reason:
            return os.path.realpath(each)
        reasons.append(f"{each}: {reason}")
    raise Failure(
        f"cannot find a {name} that the service can use",
        Exit.USAGE,
        lines=reasons,
        hint=f"install the {name} of the distribution, or name another one with --python",
    )


def _unusable(python: str, *, closed: bool) -> str:
    """Why a service cannot use this interpreter; empty if it can."""
    path = os.path.realpath(python)
    if not os.path.isfile(path):
        return "does not exist"
    if closed:
        # The service hides these from the daemon, or another user cannot enter them.
        for directory in _parents(path):
            if not os.stat(directory).st_mode & stat.S_IXOTH:
                return f"other users cannot enter {directory}"
    environment = {"PATH": os.environ.get("PATH", "")}
    try:
        done = subprocess.run(
            [path, "-I", "-c", _FACTS], capture_output=True, text=True, timeout=30, check=True, env=environment
        )
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return "does not run"
    wanted = [*sys.version_info[:2], sys.implementation.name]
    return "" if facts == wanted else f"is {facts[2]} {facts[0]}.{facts[1]}"


def _parents(path: str) -> list[str]:
    found = []
    while (parent := os.path.dirname(path)) != path:
        found.append(parent)
        path = parent
    return found


def contents_of(directory: str) -> dict[str, dict[str, str]]:
    """The versions of the packages in a virtual environment, and where those of Toban are. Raises Failure."""
    return _answer(directory, _CONTENTS)


def known_schemas(directory: str) -> set[str]:
    """The revisions of the database that the version in this directory can use. Raises Failure."""
    package = contents_of(directory)["packages"]["toband"]
    with failures(directory):
        names = os.listdir(f"{package}/store/sql/migrations/versions")
    return {found[1] for name in names if (found := re.fullmatch(r"r(\d{4})_\w+\.py", name))}


def _answer(directory: str, program: str) -> dict[str, dict[str, str]]:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    command = [f"{directory}/bin/python", "-I", "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
        found: dict[str, dict[str, str]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        raise Failure(f"cannot use {directory}: there is no working toban in it", Exit.CONFLICT) from None
    return found


def _run_python(python: str, *arguments: str, timeout: float = _PIP) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [python, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        env=environment,
    )


def _run_pip(python: str, wanted: Sequence[str], find_links: str) -> None:
    """Raises Failure."""
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
    options += ["--root-user-action=ignore"]
    if find_links:
        options += ["--no-index", "--find-links", find_links]
    if _run_python(python, "-c", "import pip").returncode and _run_python(python, "-m", "ensurepip").returncode:
        raise Failure(
            "cannot install the wheel: there is no pip",
            Exit.USAGE,
            hint="install the package python3-venv of the distribution, or pip beside this toban",
        )
    done = _run_python(python, "-m", "pip", "install", *options, *wanted)
    if done.returncode != 0:
        raise Failure(
            "cannot install the wheel",
            Exit.USAGE,
            lines=done.stderr.splitlines()[-15:],
            hint="--find-links DIR takes the packages that it needs from a directory",
        )


def _site_packages(directory: str) -> str:
    return f"{directory}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
