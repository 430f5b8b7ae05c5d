"""systemd: of the system, or of this user."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("systemd is part of Linux")

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.systemd.service_layout import UNIT

# Seconds. A start may migrate a large database: the daemon itself asks systemd for more time.
_PATIENCE: Final = 60.0
_START: Final = 3600.0
# Of systemctl: which commands show more.
_ADVICE: Final = re.compile("See ")
_CGROUP_MOUNTS: Final = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class ServiceManager:
    """Asks systemd about the service, and tells it what to do. Raises Failure if there is no systemd."""

    def __init__(self, *, user: bool) -> None:
        self.user = user
        self._scope = ("--user",) if user else ()
        self._environment = {**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_LOG_LEVEL": "warning"}
        if user:
            self._environment.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")

    def require(self) -> None:
        """Raises Failure if this systemd cannot be used from here."""
        if not os.path.isdir("/run/systemd/system") or shutil.which("systemctl") is None:
            raise Failure(
                "cannot manage the service: systemd does not run here",
                Exit.UNREACHABLE,
                hint="start `toband` by other means; docs/service.md says how elsewhere",
            )
        if self.user and not os.path.exists(f"{self._environment['XDG_RUNTIME_DIR']}/systemd/private"):
            raise Failure(
                "cannot manage the service: no service manager runs for this user",
                Exit.UNREACHABLE,
                hint=f"log in as this user, or run `loginctl enable-linger {_user_name()}` as root",
            )

    def version(self) -> int:
        found = re.match(r"systemd (\d+)", self._run(["systemctl", "--version"]).stdout)
        return int(found[1]) if found else 0

    def tell(self, *arguments: str, what: str) -> None:
        """Runs systemctl. Raises Failure with the newest lines of the log if it fails."""
        done = self._run(["systemctl", *self._scope, *arguments], patience=_START)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line and not _ADVICE.match(line)]
            raise Failure(
                f"cannot {what}: systemctl {arguments[0]} failed",
                Exit.UNREACHABLE,
                lines=[*lines, *self.journal(15)],
                hint=f"`toban service logs{' --user' if self.user else ''}` shows more",
            )

    def ask(self, *arguments: str) -> bool:
        """Whether systemctl says yes."""
        return self._run(["systemctl", *self._scope, *arguments]).returncode == 0

    def show(self, *properties: str) -> Mapping[str, str]:
        done = self._run(["systemctl", *self._scope, "show", f"--property={','.join(properties)}", UNIT])
        return dict(line.partition("=")[::2] for line in done.stdout.splitlines())

    def verify(self, unit: str, program: str, drop_ins: Mapping[str, str]) -> None:
        """Raises Failure if systemd has anything to say about these texts; it exits with 0 about an unknown key.

        `program` stands for that of the unit, which may not be in its place yet.
        """
        if shutil.which("systemd-analyze") is None:
            return
        with tempfile.TemporaryDirectory(prefix="toban-unit-") as directory:
            text = re.sub(r"^ExecStart=\S+", lambda _: f"ExecStart={program}", unit, flags=re.MULTILINE)
            for name, content in {UNIT: text, **{f"{UNIT}.d/{name}": text for name, text in drop_ins.items()}}.items():
                path = f"{directory}/{name}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
            done = self._run(["systemd-analyze", *self._scope, "verify", "--man=no", f"{directory}/{UNIT}"])
            about = [line.replace(f"{directory}/", "") for line in done.stderr.splitlines() if UNIT in line]
        if about:
            raise Failure("cannot use the unit: systemd-analyze verify complains", Exit.INTERNAL, lines=about)

    def run(self, command: Sequence[str], *, what: str) -> None:
        """Runs another program of systemd. Raises Failure."""
        done = self._run(command)
        if done.returncode != 0:
            raise Failure(f"cannot {what}: {command[0]} failed", Exit.INTERNAL, lines=done.stderr.splitlines())

    def journal(self, lines: int) -> list[str]:
        """The newest lines of the service's log."""
        if shutil.which("journalctl") is None:
            return []
        unit = "--user-unit" if self.user else "--unit"
        done = self._run(["journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={lines}", unit, UNIT])
        return done.stdout.splitlines()

    def processes(self) -> Iterator[tuple[int, str]]:
        """The processes of the service, each with its cgroup below that of the unit: the daemon's and its steps'."""
        path = self.show("ControlGroup").get("ControlGroup", "")
        if not path:
            return
        top = next((each for mount in _CGROUP_MOUNTS if os.path.isdir(each := f"{mount}{path}")), "")
        for directory, _, _ in os.walk(top):
            try:
                with open(f"{directory}/cgroup.procs", encoding="ascii") as file:
                    pids = [int(word) for word in file.read().split()]
            except OSError:
                continue
            yield from ((pid, directory.removeprefix(top)) for pid in pids)

    def steps(self) -> int:
        """How many attempts have running processes."""
        found = (re.match(r"(?:/[^/]+)?/attempts/([^/]+)", cgroup) for _, cgroup in self.processes())
        return len({match[1] for match in found if match})

    def _run(self, command: Sequence[str], *, patience: float = _PATIENCE) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=patience,
                check=False,
                env=self._environment,
            )
        except OSError as error:
            raise Failure(f"cannot run {command[0]}: {error.strerror}", Exit.UNREACHABLE) from None
        except subprocess.TimeoutExpired:
            raise Failure(
                f"cannot manage the service: {command[0]} did not answer for {patience:.0f} s", Exit.UNREACHABLE
            ) from None


def _user_name() -> str:
    import getpass

    return getpass.getuser()
