"""A real systemd as the first process of a container on an overlay of this machine's own files.

Needs root, overlayfs and systemd-nspawn. Everything it mounts and starts is gone at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from helpers.wait import wait_until

REPOSITORY = Path(__file__).parents[2]
# Where the program and its Python are inside: under names that any user can reach.
PYTHON, PACKAGES, SOURCE = "/opt/python", "/opt/packages", "/opt/source"
_QUIET = (
    "postgresql.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "systemd-timesyncd.service",
    "systemd-networkd.service",
    "systemd-sysctl.service",
    "sysstat.service",
    "getty.target",
)


def missing() -> str:
    """Why there can be no such machine here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root"
    for program in ("systemd-nspawn", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"needs {program}"
    return ""


class Machine:
    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self.leader = leader

    def run(self, *command: str, check: bool = True) -> str:
        """What the command printed, run inside."""
        result = subprocess.run(
            ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", *command],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {result.stdout}{result.stderr}")
        return result.stdout.strip()

    def main_pid(self, unit: str) -> int:
        return int(self.run("systemctl", "show", "-P", "MainPID", unit))


@contextlib.contextmanager
def machine(base: Path, name: str, *, bare: bool = False) -> Iterator[Machine]:
    """A booted one with the unit of toband in place; a `bare` one has nothing of Toban."""
    root = base / "root"
    with contextlib.ExitStack() as stack:
        _mount(stack, base, "-t", "tmpfs", "-o", "size=2g", "none")
        for part in ("up", "work", "root", "low"):
            (base / part).mkdir()
        _mount(stack, base / "low", "--bind", "/")
        # A cleanup that goes astray must not reach the files of this machine.
        subprocess.run(["mount", "-o", "remount,bind,ro", base / "low"], check=True, timeout=30)
        layers = f"lowerdir={base}/low,upperdir={base}/up,workdir={base}/work"
        _mount(stack, root, "-t", "overlay", "-o", layers, "overlay")
        _furnish(root)
        if not bare:
            _furnish_service(root)
        for hierarchy in ("unified", "systemd"):
            stack.enter_context(_cgroup(Path("/sys/fs/cgroup") / hierarchy / name))
        process = stack.enter_context(_booted(root, name))
        leader = wait_until(lambda: _leader(process.pid), "there is no first process")
        found = Machine(root, leader)
        bus = Path(f"/proc/{leader}/root/run/dbus/system_bus_socket")
        wait_until(bus.exists, "it does not boot", 90.0)
        found.run("systemctl", "is-system-running", "--wait", check=False)
        yield found


def _mount(stack: contextlib.ExitStack, target: Path, *how: str) -> None:
    subprocess.run(["mount", *how, str(target)], check=True, timeout=30)
    # Lazily, if something still holds it: nothing may stay.
    stack.callback(lambda: subprocess.run(["umount", "-l", str(target)], check=True, timeout=30))


@contextlib.contextmanager
def _cgroup(path: Path) -> Iterator[None]:
    if not path.parent.is_dir():
        yield
        return
    path.mkdir(exist_ok=True)
    try:
        yield
    finally:
        for below, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(below)


def _furnish(root: Path) -> None:
    machine_id = subprocess.run(["systemd-id128", "new"], check=True, capture_output=True, text=True, timeout=30).stdout
    (root / "etc/machine-id").write_text(machine_id)
    units = root / "etc/systemd/system"
    for unit in _QUIET:
        with contextlib.suppress(FileExistsError):
            (units / unit).symlink_to("/dev/null")


def _furnish_service(root: Path) -> None:
    units = root / "etc/systemd/system"
    files = REPOSITORY / "service-files"
    shutil.copy(files / "systemd/toban.sysusers", root / "usr/lib/sysusers.d/toban.conf")
    shutil.copy(files / "systemd/toband.service", units)
    (root / "etc/toban").mkdir(mode=0o755, exist_ok=True)
    shutil.copy(files / "toband.toml", root / "etc/toban")
    drop_in = units / "toband.service.d"
    drop_in.mkdir()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (drop_in / "here.conf").write_text(
        "[Service]\n"
        "ExecStart=\n"
        f"ExecStart={PYTHON}/bin/{version} -m toband --config /etc/toban/toband.toml\n"
        f"Environment=PYTHONHOME={PYTHON} LD_LIBRARY_PATH={PYTHON}/lib\n"
        # The packages have Toban too, unless it is installed as a working copy.
        f"Environment=PYTHONPATH={PACKAGES}:{SOURCE}/daemon:{SOURCE}/client PYTHONDONTWRITEBYTECODE=1\n"
    )


@contextlib.contextmanager
def _booted(root: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    binds = {
        PYTHON: sys.base_prefix,
        PACKAGES: sysconfig.get_paths()["purelib"],
        SOURCE: str(REPOSITORY),
    }
    into = "; ".join(
        f"echo $$ > /sys/fs/cgroup/{hierarchy}/{name}/cgroup.procs"
        for hierarchy in ("unified", "systemd")
        if Path(f"/sys/fs/cgroup/{hierarchy}/{name}").is_dir()
    )
    command = [
        "systemd-nspawn",
        "-q",
        "--register=no",
        "--keep-unit",
        "--link-journal=no",
        "-D",
        str(root),
        "--boot",
        "--private-network",
        "-M",
        name,
        "--console=pipe",
        # Of its own accord it takes Landlock away from all that runs inside.
        "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",
        *(f"--bind-ro={outside}:{inside}" for inside, outside in binds.items()),
        "systemd.unit=multi-user.target",
    ]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'{into or ":"}; exec "$@"', "sh", *command],
        env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _leader(nspawn: int) -> int:
    """The child of nspawn that is the machine's first process."""
    children = Path(f"/proc/{nspawn}/task/{nspawn}/children")
    for word in children.read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{word}/comm").read_text().strip() == "systemd":
                return int(word)
    return 0
