"""A daemon as the systemd unit starts it: not root, with the unit's capabilities, and a user for its steps.

Python and the code are bound to where any user can reach them, in a mount namespace that ends with the daemon.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from helpers.daemon import Daemon

REPOSITORY = Path(__file__).parents[2]
UNIT = REPOSITORY / "service-files/systemd/toband.service"
DAEMON_USER, STEP_USER = "daemon", "nobody"
_SCRIPT = """\
set -e
for name in python packages source; do
    eval "mount --bind \\"\\$$name\\" \\"$base/$name\\""
done
exec setpriv --reuid={user} --regid={group} --clear-groups {capabilities} "$@"
"""


def missing() -> str:
    """Why there can be no such daemon here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root"
    for program in ("unshare", "setpriv"):
        if shutil.which(program) is None:
            return f"needs {program}"
    for user in (DAEMON_USER, STEP_USER):
        try:
            pwd.getpwnam(user)
        except KeyError:
            return f"needs the user {user}"
    return ""


def unit_capabilities() -> list[str]:
    """Those that the unit gives the daemon, such as `kill`."""
    found = re.search(r"^AmbientCapabilities=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    return [name.removeprefix("CAP_").lower() for name in found[1].split()]


@contextmanager
def capable_daemon(
    *arguments: str, environment: Mapping[str, str] | None = None, step_user: str = STEP_USER
) -> Iterator[Daemon]:
    """At the end it is gone, with all that it started and all its files."""
    # Not below pytest's directory, which every other session closes to other users again.
    with TemporaryDirectory(prefix="toban-capable-") as directory:
        Path(directory).chmod(0o755)
        with _running(Path(directory), arguments, environment or {}, step_user) as daemon:
            yield daemon


@contextmanager
def _running(base: Path, arguments: Sequence[str], environment: Mapping[str, str], step_user: str) -> Iterator[Daemon]:
    for name in ("python", "packages", "source"):
        (base / name).mkdir()
    state_dir = base / "state"
    state_dir.mkdir(mode=0o750)
    who = pwd.getpwnam(DAEMON_USER)
    os.chown(state_dir, who.pw_uid, who.pw_gid)
    places = {
        "base": str(base),
        "python": sys.base_prefix,
        "packages": sysconfig.get_paths()["purelib"],
        "source": str(REPOSITORY),
    }
    running = {
        "PYTHONHOME": f"{base}/python",
        "LD_LIBRARY_PATH": f"{base}/python/lib",
        # The packages have Toban too, unless it is installed as a working copy.
        "PYTHONPATH": f"{base}/packages:{base}/source/daemon:{base}/source/client",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOBAN_STEP_USER": step_user,
    }
    daemon = Daemon(state_dir, *arguments, environment={**running, **places, **environment})
    capabilities = ",".join(f"+{name}" for name in unit_capabilities())
    script = _SCRIPT.format(
        user=who.pw_uid, group=who.pw_gid, capabilities=f"--inh-caps={capabilities} --ambient-caps={capabilities}"
    )
    python = f"{base}/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    daemon.program = ("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", python, "-m", "toband")
    daemon.log.touch()
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.clear()
