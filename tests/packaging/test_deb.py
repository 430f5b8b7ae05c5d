"""The Debian package on a machine that has never had Toban: install, run, upgrade with a running step, purge."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import systemd_machine
from helpers.systemd_machine import REPOSITORY, Machine
from helpers.wait import wait_until

DEBIAN_PYTHON = Path("/usr/bin/python3")

pytestmark = [
    pytest.mark.skipif(bool(systemd_machine.missing()), reason=systemd_machine.missing() or "-"),
    pytest.mark.skipif(
        not Path("/usr/bin/deb-systemd-helper").exists() or not DEBIAN_PYTHON.exists(), reason="needs Debian"
    ),
    pytest.mark.timeout(600),
]

WORKFLOW = """
name: packaged
description: who runs it
steps:
  who: {run: 'id -un; command -v toban'}
"""
GATED = "name: gated\ndescription: waits\nsteps: {wait: {run: 'echo pid $$; read _ < /tmp/gate; echo done'}}\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("deb")
    built = subprocess.run(
        [REPOSITORY / "scripts/build-deb", "--to", directory],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = directory.glob("*.deb")
    return found


@pytest.fixture
def host(package: Path, tmp_path: Path) -> Iterator[Machine]:
    with systemd_machine.machine(tmp_path, "toban-deb", bare=True) as found:
        # Images of containers forbid packages to start services.
        (found.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        (found.root / "toban.deb").write_bytes(package.read_bytes())
        yield found


def named_toban(host: Machine) -> set[str]:
    """Paths of the system that are named after Toban, without logs and caches of the package manager."""
    # /tmp and /root are those of the machine that runs the tests.
    places = ("/etc", "/usr", "/lib", "/var/lib", "/var/cache", "/run", "/opt")
    found = host.run("find", *places, "-xdev", "-name", "*toban*", check=False)
    return {path for path in found.splitlines() if not path.startswith(("/var/lib/dpkg", "/run/systemd"))}


def test_a_package_from_nothing_to_nothing(host: Machine) -> None:
    before = named_toban(host)
    host.run("apt-get", "install", "-y", "/toban.deb")
    assert host.run("systemctl", "is-enabled", "toband") == "enabled"
    assert host.run("systemctl", "is-active", "toband") == "active"
    assert host.run("stat", "-c", "%U:%G %a", "/etc/toban", "/var/lib/toban").split("\n") == [
        "root:toban 750",
        "toban:toban 750",
    ]
    assert host.run("dpkg", "-V", "toban") == ""
    assert (host.root / "usr/share/man/man1/toban-run.1.gz").exists()

    (host.root / "tmp").mkdir(exist_ok=True)
    (host.root / "packaged.yaml").write_text(WORKFLOW)
    (host.root / "gated.yaml").write_text(GATED)
    host.run("toban", "apply", "/packaged.yaml", "/gated.yaml")
    host.run("toban", "run", "packaged", "--wait")
    printed = host.run("toban", "logs", "packaged")
    assert "toban-step" in printed

    # An upgrade to the same version restarts the daemon under a step.
    host.run("mkfifo", "-m", "666", "/tmp/gate")
    host.run("toban", "run", "gated")
    wait_until(lambda: "pid" in host.run("toban", "logs", "gated"), "the step does not start")
    pid = host.main_pid("toband")
    host.run("apt-get", "install", "-y", "--reinstall", "/toban.deb")
    assert host.main_pid("toband") != pid
    host.run("sh", "-c", "echo go > /tmp/gate")
    host.run("toban", "watch", "gated")
    assert host.run("toban", "logs", "gated").splitlines()[-1].endswith("done")

    (host.root / "etc/toban/toband.toml").write_text('state_dir = "/var/lib/toban"\nmax_attempts_running = 9\n')
    host.run("systemctl", "reload", "toband")
    wait_until(lambda: " 9 " in host.run("toban", "system", "config"), "reload does nothing")

    host.run("apt-get", "remove", "-y", "toban")
    assert host.run("systemctl", "is-active", "toband", check=False) != "active"
    assert "max_attempts_running = 9" in (host.root / "etc/toban/toband.toml").read_text()
    assert (host.root / "var/lib/toban/toban.db").exists()
    host.run("apt-get", "purge", "-y", "toban")
    assert named_toban(host) == before
    assert host.run("getent", "passwd", "toban", "toban-step").count("\n") == 1, "the users stay"
