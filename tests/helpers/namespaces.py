"""Network namespaces: machines with addresses of their own, connected by a cable. Linux, and root only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_HOSTS = Path("/etc/netns")


@dataclass(frozen=True)
class Machine:
    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """Before a command that runs there."""
        return ("ip", "netns", "exec", self.name)


def reason_without() -> str:
    """Why this machine cannot have namespaces; empty if it can."""
    if shutil.which("ip") is None:
        return "needs the command ip"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    name = f"tb{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"cannot make network namespaces: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


@contextmanager
def two_machines(hosts: Mapping[str, str] | None = None, further: str = "") -> Iterator[tuple[Machine, Machine]]:
    """A server and a client, which knows the `hosts`: addresses by name. The server also has the address `further`."""
    server = Machine(f"tb{os.getpid()}-server", "10.77.0.1")
    client = Machine(f"tb{os.getpid()}-client", "10.77.0.2")
    try:
        for machine in (server, client):
            _ip("netns", "add", machine.name)
        _ip("-n", server.name, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", client.name)
        for machine in (server, client):
            _ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", machine.name, "link", "set", device, "up")
        if further:
            _ip("-n", server.name, "address", "add", f"{further}/24", "dev", "cable")
        own = _HOSTS / client.name
        own.mkdir(parents=True)
        (own / "hosts").write_text("".join(f"{address} {name}\n" for name, address in (hosts or {}).items()))
        yield server, client
    finally:
        for machine in (server, client):
            # Its devices go with it.
            subprocess.run(["ip", "netns", "delete", machine.name], capture_output=True, check=False)
        shutil.rmtree(_HOSTS / client.name, ignore_errors=True)
        if _HOSTS.is_dir() and not any(_HOSTS.iterdir()):
            _HOSTS.rmdir()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
