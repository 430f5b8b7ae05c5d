"""A daemon on another machine, as docs/remote.md sets it up: both are network namespaces with a cable between them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.daemon import Daemon
from helpers.namespaces import Machine, reason_without, two_machines
from helpers.wait import wait_until
from toban.certificate_authority import CertificateAuthority, KeyPair

WITHOUT = reason_without() or ("" if shutil.which("script") else "needs the command script, for a terminal")
pytestmark = pytest.mark.skipif(bool(WITHOUT), reason=WITHOUT)

PAGE = Path(__file__).parents[2] / "docs" / "remote.md"
HOST = "toban.example.org"
WRONG_HOST = "wrong.example.org"
WITHIN = 120.0

FLOW = """
name: nightly
steps:
  hello:
    run: echo "hello from $(ip -brief address show dev cable | tr -s ' ' | cut -d' ' -f3)"
"""
LONG = """
name: long
steps:
  wait:
    run: echo started; exec sleep 600
"""


@dataclass(frozen=True)
class Laptop:
    """Runs `toban` on the client's machine."""

    machine: Machine
    home: Path

    def environment(self, **further: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOBAN_")}
        return {**kept, "XDG_CONFIG_HOME": str(self.home), "HOME": str(self.home), "LC_ALL": "C.UTF-8", **further}

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.machine.prefix, sys.executable, "-m", "toban.cli", *words],
            cwd=self.home,
            env=self.environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, stdin: str = "", code: int = 0, **environment: str) -> tuple[str, str]:
        process = self.start(*words, **environment)
        out, err = process.communicate(stdin, timeout=WITHIN)
        assert process.returncode == code, f"{words}: {out}{err}"
        return out, err


@dataclass(frozen=True)
class Setup:
    laptop: Laptop
    daemon: Daemon
    tls: Path
    token: str


# What the page uses and a test has not: another user, a service manager, and ssh.
PROGRAMS = {
    "sudo": 'exec "$@"',
    "systemctl": '[ "$*" = "restart toband" ] && touch {work}/restarted',
    "scp": f'[ "$1" = "{HOST}:{{work}}/tls/ca.crt" ] && cp {{work}}/tls/ca.crt "$2"',
    "toban": 'exec {python} -m toban.cli "$@"',
}


@dataclass(frozen=True)
class Page:
    """The commands and the configuration of docs/remote.md, with paths of the test."""

    work: Path

    def blocks(self, language: str) -> list[str]:
        text = PAGE.read_text("utf-8").replace("/etc/toban", str(self.work))
        text = text.replace("/run/toban/admin.sock", f"{self.work}/state/toban.sock")
        text = text.replace("/run/toban/toban.sock", f"{self.work}/state/group.sock")
        text = text.replace("--user toban", "--user root").replace('group = "toban"', 'group = "root"')
        return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)

    def commands(self) -> list[str]:
        """In order."""
        return [line for block in self.blocks("sh") for line in block.splitlines()]

    def typed(self, machine: Machine, home: Path, line: str, asked: str = "") -> str:
        """What a line of the page prints in a shell of the machine, on a terminal; `asked` answers a question."""
        programs = self.work / "bin"
        programs.mkdir(exist_ok=True)
        for name, text in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text.format(work=self.work, python=sys.executable)}\n")
            (programs / name).chmod(0o755)
        environment = Laptop(machine, home).environment(PATH=f"{programs}:{os.environ['PATH']}", NO_COLOR="1")
        with subprocess.Popen(
            [*machine.prefix, "script", "-qec", line, "/dev/null"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            printed = b""
            while some := process.stdout.read1():  # type: ignore[attr-defined]
                printed += some
                if asked and printed.rstrip().endswith(b":"):
                    process.stdin.write(f"{asked}\n".encode())
                    process.stdin.flush()
                    asked = ""
        assert process.returncode == 0, printed.decode()
        return printed.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """What the page says, command by command."""
    work = tmp_path_factory.mktemp("remote")
    home, page = work / "home", Page(work)
    home.mkdir()
    (work / "state").mkdir()
    hosts = {HOST: "10.77.0.1", WRONG_HOST: "10.77.0.1"}
    with two_machines(hosts) as (server, client):
        laptop = Laptop(client, home)
        init, restart, copy, add, whoami = page.commands()
        printed = page.typed(server, work, init)
        (listen,) = page.blocks("toml")
        found = re.fullmatch(r"(?s).*?\n(\[tls\].*?)\nThe token of .*\n(toban_\S+)\n", printed)
        assert found is not None
        tables, token = found.groups()
        config = work / "toband.toml"
        config.write_text(f"{listen}\n{tables}")
        page.typed(server, work, restart)
        assert (work / "restarted").exists()
        daemon = Daemon(work / "state", "--config", str(config))
        daemon.program = (*server.prefix, *daemon.program)
        try:
            daemon.start()
            page.typed(client, home, copy)
            assert "added prod\n" in page.typed(client, home, add, asked=token)
            assert re.search("^identity: +token:admin$", page.typed(client, home, whoami), re.MULTILINE)
            yield Setup(laptop, daemon, work / "tls", token)
        finally:
            daemon.clear()


def test_work_from_a_laptop(setup: Setup) -> None:
    laptop = setup.laptop
    for name, source in (("nightly", FLOW), ("long", LONG)):
        (laptop.home / f"{name}.yaml").write_text(source)
        assert laptop.run("apply", f"{name}.yaml")[0].startswith(f"{name} created")
    out, _ = laptop.run("run", "nightly", "--follow")
    assert "hello | hello from 10.77.0.1/24" in out
    assert "nightly#1 succeeded" in out
    laptop.run("run", "long")
    wait_until(lambda: "started" in laptop.run("logs", "long")[0], "the step began")
    laptop.run("cancel", "long", "--wait")
    assert json.loads(laptop.run("show", "long", "-o", "json")[0])["state"] == "cancelled"
    (run,) = json.loads(laptop.run("runs", "list", "--workflow", "long", "-o", "json")[0])
    assert run["caller"] == "token:admin"
    access, _ = laptop.run("access")
    assert "tls://0.0.0.0:7233" in access
    assert "none: a credential is required" in access


def test_a_revoked_token_ends_with_its_streams(setup: Setup) -> None:
    laptop = setup.laptop
    (laptop.home / "waits.yaml").write_text(LONG.replace("name: long", "name: waits"))
    laptop.run("apply", "waits.yaml")
    laptop.run("run", "waits")
    laptop.run("tokens", "create", "reader", "--role", "viewer", "--to", "reader.token")
    reads = ("--server", f"tls://{HOST}", "--ca", "ca.crt", "--token-file", "reader.token")
    refused, error = laptop.run(*reads, "cancel", "waits", code=4)
    assert refused == ""
    assert error.splitlines()[0].startswith("toban: cannot cancel run waits: ")
    follower = laptop.start(*reads, "logs", "waits", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "started\n"
    laptop.run("tokens", "revoke", "reader")
    _, error = follower.communicate(timeout=WITHIN)
    assert follower.returncode == 4, error
    out, error = laptop.run(*reads, "runs", "list", code=4)
    assert out == ""
    assert error.splitlines()[0].startswith("toban: cannot list runs: ")
    assert len(error.splitlines()) == 2
    assert "toban_" not in error

    def outcomes() -> set[str]:
        return {each["outcome"] for each in json.loads(laptop.run("audit", "list", *by_reader, "-o", "json")[0])}

    # Refusals are recorded soon, not at once.
    by_reader = ("--actor", "token:reader")
    wait_until(lambda: outcomes() == {"refused"}, "the audit log has no refusal, or more than that")
    laptop.run("cancel", "waits", "--wait")


def test_what_cannot_be_trusted(setup: Setup) -> None:
    laptop = setup.laptop
    lines = {}
    foreign = CertificateAuthority.create("Foreign", lifetime=timedelta(days=1))
    (laptop.home / "foreign.crt").write_bytes(foreign.pair.certificate)
    for name, words in {
        "foreign": ("--server", f"tls://{HOST}", "--ca", "foreign.crt"),
        "unknown": ("--server", f"tls://{HOST}"),
        "host": ("--server", f"tls://{WRONG_HOST}", "--ca", "ca.crt"),
        "port": ("--server", f"tls://{HOST}:7234", "--ca", "ca.crt"),
    }.items():
        _, error = laptop.run(*words, "runs", "list", code=3, TOBAN_TOKEN=setup.token)
        lines[name], hint = error.splitlines()
        assert hint.startswith("hint: ")
        assert setup.token not in error
    trust = f"toban: cannot trust tls://{HOST}:7233: the server's certificate is not signed by"
    assert lines["foreign"] == f"{trust} the given CA"
    assert lines["unknown"] == f"{trust} a CA that this machine trusts"
    assert f"the server's certificate is for {HOST}, not for {WRONG_HOST}" in lines["host"]
    assert lines["port"].endswith("nothing listens there")
    _, error = laptop.run("--server", f"tls://{HOST}", "--ca", "ca.crt", "runs", "list", code=4)
    assert error.splitlines()[0].startswith("toban: cannot list runs: ")
    _, error = laptop.run("--server", f"{HOST}:7233", "runs", "list", code=2)
    assert f"use tls://{HOST}:7233" in error


def test_an_expired_certificate_and_its_renewal(setup: Setup) -> None:
    laptop, tls = setup.laptop, setup.tls
    ca = CertificateAuthority(KeyPair(certificate=(tls / "ca.crt").read_bytes(), key=(tls / "ca.key").read_bytes()))
    # The daemon refuses one that has expired already.
    replace(tls, ca.server([HOST], lifetime=timedelta(seconds=6)))

    def line() -> str:
        process = laptop.start("runs", "list")
        return process.communicate(timeout=WITHIN)[1]

    wait_until(lambda: "the server's certificate has expired" in line(), "the certificate expires")
    assert line().startswith(f"toban: cannot trust tls://{HOST}:7233: ")
    laptop.run("access", "renew", "--dir", str(tls))
    wait_until(lambda: line() == "", "the daemon reads the new certificate")


def replace(tls: Path, pair: KeyPair) -> None:
    for kind, content in (("key", pair.key), ("crt", pair.certificate)):
        new = tls / f"server.{kind}.new"
        new.write_bytes(content)
        new.replace(tls / f"server.{kind}")
