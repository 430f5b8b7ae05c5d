"""Creates the scripts' virtual environment and keeps it up to date. `venv.sh` calls it: venv.py DIRECTORY EXTRAS.

Written for Python 3.6, so that an interpreter that is too old can say so.
"""

import sys

if sys.platform == "win32":
    raise SystemExit("setup: these scripts are for POSIX systems: use `python -m venv` and pip by hand")

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any, Dict, List, Sequence, Set

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STAMP = "toban-setup.json"
SHOWN = 25
# What a wheel is made of.
PARTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "scripts/lib/build_hook.py",
    "scripts/lib/console_build.py",
    "scripts/lib/man_pages.py",
    "scripts/lib/node_program.py",
    "client",
    "daemon",
    "service-files",
)
# Directories in these parts that the build makes.
MADE = ("__pycache__", "node_modules", ".node", "static")

# Facts about an interpreter that are needed before it is used.
_FACTS = (
    "import json, sys, importlib.util as u; print(json.dumps({"
    "'version': list(sys.version_info[:3]),"
    "'venv': all(u.find_spec(name) for name in ('venv', 'ensurepip')),"
    "'pip': bool(u.find_spec('pip'))}))"
)


class SetupError(Exception):
    """The environment cannot be created; the text says why and what to do."""


def main(directory: str, wanted: str) -> int:
    extras = {extra for extra in wanted.split(",") if extra}
    stamp = _stamp(directory)
    if os.environ.get("TOBAN_VENV") and os.path.isdir(directory) and not stamp:
        return 0
    try:
        if not _is_ready(directory, stamp, extras):
            with open(__file__) as lock:
                _take(lock.fileno())
                stamp = _stamp(directory)
                if not _is_ready(directory, stamp, extras):
                    _set_up(directory, stamp, extras)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _is_ready(directory: str, stamp: Dict[str, Any], extras: Set[str]) -> bool:
    return stamp.get("project") == _digest() and extras <= set(stamp["extras"]) and _may_stay(directory, stamp)


def _may_stay(directory: str, stamp: Dict[str, Any]) -> bool:
    """Whether this script finished the environment, it was not moved, and it has the requested interpreter."""
    asked = os.environ.get("TOBAN_PYTHON")
    return (
        stamp.get("directory") == directory
        and os.access(f"{directory}/bin/python", os.X_OK)
        and (not asked or stamp["python"] == _facts(asked)["version"])
    )


def _set_up(directory: str, stamp: Dict[str, Any], extras: Set[str]) -> None:
    log, path = tempfile.mkstemp(prefix="toban-setup-", suffix=".log")
    try:
        if _may_stay(directory, stamp):
            # Keep packages that were installed for another script.
            extras = extras | set(stamp["extras"])
        elif stamp or not os.path.exists(directory):
            _create(directory, log, path)
        else:
            _check_foreign(directory)
        _write_stamp(directory, {"unfinished": True})
        _install(directory, extras, log, path)
    except SetupError:
        if os.fstat(log).st_size == 0:
            os.unlink(path)
        raise
    finally:
        os.close(log)
    os.unlink(path)


def _interpreter() -> str:
    """The requested interpreter, else the first that is new enough, else the one to report as too old."""
    asked = os.environ.get("TOBAN_PYTHON")
    if asked:
        return asked
    names = ["python3", *(f"python3.{minor}" for minor in range(20, 10, -1)), "python"]
    found = [name for name in names if shutil.which(name)]
    for name in found:
        try:
            if tuple(_facts(name)["version"]) >= OLDEST:
                return name
        except SetupError:
            continue
    return found[0] if found else "python3"


def _create(directory: str, log: int, path: str) -> None:
    python = _interpreter()
    facts = _facts(python)
    version = facts["version"]
    if tuple(version) < OLDEST:
        raise SetupError(
            f"cannot use {python}: it is Python {_dotted(version)}, and Toban needs "
            f"{_dotted(OLDEST)} or newer; name a newer one with TOBAN_PYTHON"
        )
    if not facts["venv"]:
        raise SetupError(
            f"cannot make a virtual environment: {python} came without its venv or ensurepip module; "
            f"on Debian and Ubuntu: apt-get install python3-venv (or python{_dotted(version[:2])}-venv)"
        )
    print(f"setup: making {_short(directory)} with Python {_dotted(version)}", file=sys.stderr)
    if os.path.isdir(directory):
        # Created by this script and unusable: unfinished, moved, or of another interpreter.
        shutil.rmtree(directory)
    os.makedirs(directory)
    _write_stamp(directory, {"unfinished": True})
    _run([python, "-m", "venv", directory], "cannot make a virtual environment", log, path)


def _check_foreign(directory: str) -> None:
    """Installs into an environment that was created by hand, and never removes it."""
    advice = f"remove {_short(directory)}, or name another directory with TOBAN_VENV"
    if not os.access(f"{directory}/bin/python", os.X_OK):
        raise SetupError(f"cannot use {directory}: it is no virtual environment; {advice}")
    facts = _facts(f"{directory}/bin/python")
    if tuple(facts["version"]) < OLDEST:
        raise SetupError(f"cannot use {directory}: its Python is {_dotted(facts['version'])}; {advice}")
    if not facts["pip"]:
        raise SetupError(f"cannot use {directory}: there is no pip in it; {advice}")


def _install(directory: str, extras: Set[str], log: int, path: str) -> None:
    names = ",".join(sorted(extras))
    print(f"setup: installing toban[{names}] into {_short(directory)}", file=sys.stderr)
    pip = [f"{directory}/bin/python", "-m", "pip"]
    failure = "cannot install what the project needs"
    if _wants_wheel():
        with tempfile.TemporaryDirectory(prefix="toban-wheel-") as made:
            _run([*pip, "wheel", "--no-deps", "--wheel-dir", made, ROOT], "cannot build the wheel", log, path)
            (wheel,) = os.listdir(made)
            # pip keeps another wheel of the same version.
            _run([*pip, "uninstall", "--yes", "toban"], failure, log, path)
            _run([*pip, "install", f"{made}/{wheel}[{names}]"], failure, log, path)
    else:
        _run([*pip, "install", "--editable", f"{ROOT}[{names}]"], failure, log, path)
    _write_stamp(
        directory,
        {
            "project": _digest(),
            "directory": directory,
            "extras": sorted(extras),
            "python": _facts(pip[0])["version"],
        },
    )


def _wants_wheel() -> bool:
    """Whether Toban is to be installed as users install it, and not as a working copy."""
    return bool(os.environ.get("TOBAN_TEST_WHEEL"))


def _run(command: List[str], failure: str, log: int, path: str) -> None:
    environment = dict(os.environ, PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=ROOT)
    if code == 0:
        return
    with open(path, errors="replace") as file:
        lines = file.read().splitlines()
    for line in lines[-SHOWN:]:
        print(f"    {line}", file=sys.stderr)
    raise SetupError(f"{failure}: the last lines are above, all of them in {path}")


def _facts(python: str) -> Dict[str, Any]:
    try:
        answer = subprocess.check_output([python, "-I", "-c", _FACTS], stdin=subprocess.DEVNULL)
        facts: Dict[str, Any] = json.loads(answer.decode())
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise SetupError(f"cannot run {python}: {error}") from error
    return facts


def _stamp(directory: str) -> Dict[str, Any]:
    """The notes about an environment that this script created; empty if there is none."""
    try:
        with open(f"{directory}/{STAMP}") as file:
            stamp: Dict[str, Any] = json.load(file)
        return stamp
    except FileNotFoundError:
        return {}
    except ValueError:
        return {"unfinished": True}


def _write_stamp(directory: str, facts: Dict[str, Any]) -> None:
    with open(f"{directory}/{STAMP}.new", "w") as file:
        json.dump(facts, file)
    os.replace(f"{directory}/{STAMP}.new", f"{directory}/{STAMP}")


def _digest() -> str:
    """Of what is installed: of a working copy only the requirements."""
    if not _wants_wheel():
        with open(f"{ROOT}/pyproject.toml", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    digest = hashlib.sha256()
    for path in _parts():
        with open(f"{ROOT}/{path}", "rb") as file:
            digest.update(f"{path} {hashlib.sha256(file.read()).hexdigest()}\n".encode())
    return "wheel " + digest.hexdigest()


def _parts() -> List[str]:
    """The files that a wheel is made of."""
    found = [part for part in PARTS if os.path.isfile(f"{ROOT}/{part}")]
    for part in PARTS:
        for parent, directories, files in os.walk(f"{ROOT}/{part}"):
            directories[:] = [name for name in directories if name not in MADE]
            found += [os.path.relpath(f"{parent}/{name}", ROOT) for name in files]
    return sorted(found)


def _take(fd: int) -> None:
    """One setup at a time; the kernel releases the lock when this process ends."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("setup: waiting for another one to finish", file=sys.stderr)
        fcntl.flock(fd, fcntl.LOCK_EX)


def _short(path: str) -> str:
    return os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}/") else path


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
