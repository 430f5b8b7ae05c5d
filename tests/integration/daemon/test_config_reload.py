"""Reloading the configuration: what takes effect, what needs a restart, and that no run notices."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, waits_for
from helpers.gate import Gate
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import secret_pb2, secret_pb2_grpc, system_pb2
from toband.config.keys import SETTINGS

DIGEST = "0123456789abcdef" * 4


@dataclass(frozen=True)
class Host:
    daemon: Daemon
    file: Path
    notified: socket.socket

    def write(self, text: str, *tables: str) -> None:
        self.file.write_text("\n".join((text, *tables)))

    def reload(self) -> system_pb2.ReloadConfigResponse:
        self.notices()  # a socket that nobody reads is full after some
        return self.daemon.system.ReloadConfig(system_pb2.ReloadConfigRequest(), timeout=60)

    def info(self) -> system_pb2.GetInfoResponse:
        return self.daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=60)

    def settings(self) -> Mapping[str, system_pb2.ConfigValue]:
        found = self.daemon.system.GetConfig(system_pb2.GetConfigRequest(), timeout=60)
        return {each.key: each for each in found.values}

    def conditions(self) -> Mapping[str, str]:
        return {each.name: each.detail for each in self.info().health.conditions}

    def notices(self) -> list[list[str]]:
        """The notifications to systemd since the last call."""
        found = []
        while True:
            try:
                found.append(self.notified.recv(4096, socket.MSG_DONTWAIT).decode().split("\n"))
            except BlockingIOError:
                return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    place = tmp_path_factory.mktemp("r")
    file = place / "toband.toml"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(f"{place}/notify")
        file.write_text("")
        environment = {"NOTIFY_SOCKET": f"{place}/notify", "TZ": "UTC"}
        with running_daemon(place / "s", "--config", str(file), environment=environment) as daemon:
            yield Host(daemon, file, notified)


@pytest.fixture(autouse=True)
def defaults(host: Host) -> Iterator[None]:
    yield
    host.write("")
    host.reload()


EVERY_LIVE_SETTING = (
    """
blackout = ["0 2 * * sun/2h"]
stop_policy = "wait"
stop_deadline = "20s"
default_run_timeout = "1h"
max_attempts_running = 99
event_concurrency = 9
disk_reserve = 0
timezone = "Asia/Tokyo"
""",
    """
[steps]
users = ["nobody"]
shells = ["bash"]
workspaces = ["/srv/*"]
environment_names = ["APP_*"]
environment_denied = ["LD_*"]
environment = { TZ = "UTC" }
inherit = ["HTTP_PROXY"]
sudo = true
""",
    """
[locks]
db = 3
[limits]
attempt_log = "1MiB"
total_logs = "1GiB"
artifact_bytes = "1GiB"
artifact_files = 99
artifact_time = "1m"
artifact_rate = "1MiB"
client_time = "20s"
calls_per_identity = 99
streams_per_identity = 9
request_rate = 99
request_burst = 999
failed_logins = 9
""",
    """
[retention]
age = "9d"
runs = 9
bytes = "9GiB"
total_runs = 99
total_bytes = "99GiB"
audit = "99d"
audit_entries = 999
requests = "9d"
ledger = "9d"
ledger_entries = 99
events = "9d"
total_events = 999
tokens = "9d"
versions = 9
compress_after = "9m"
""",
    f"""
[secrets.providers.files]
directory = "/etc"
[access.tokens.ci]
role = "viewer"
digest = "{DIGEST}"
[[access.certificates]]
subject_cn = "x"
role = "viewer"
[[access.issuers]]
issuer = "i"
audience = "a"
jwks_file = "/k"
rules = []
[log]
level = "debug"
format = "json"
""",
)


def test_every_live_setting_takes_effect_and_the_others_wait_for_a_restart(host: Host) -> None:
    host.write(*EVERY_LIVE_SETTING)
    done = host.reload()
    assert not done.problems
    live = {key for key, setting in SETTINGS.items() if setting.live}
    assert {each.key for each in done.applied} == {*live, "locks.db"}
    assert [each.key for each in done.needs_restart] == ["timezone"]
    assert [line[0] for line in host.notices()] == ["RELOADING=1", "READY=1"]
    found = host.settings()
    assert json.loads(found["max_attempts_running"].value_json) == host.info().max_attempts_running == 99
    assert (found["max_attempts_running"].place, found["max_attempts_running"].live) == (f"{host.file}:6", True)
    assert json.loads(found["timezone"].value_json) != "Asia/Tokyo"
    assert '"level": "debug"' not in host.daemon.log.read_text()
    assert "reloaded the configuration" in host.daemon.log.read_text()
    host.write("")
    back = {each.key for each in host.reload().applied}
    assert back == {*live, "locks.db"}
    assert not host.reload().applied


def test_an_invalid_configuration_changes_nothing_and_is_reported_until_it_is_correct(host: Host) -> None:
    host.write("max_attempts_running = 7\nstop_polcy = 'wait'")
    expected = f"{host.file}:2: unknown key `stop_polcy`: did you mean `stop_policy`?"
    assert list(host.reload().problems) == [expected]
    assert host.info().max_attempts_running == 256
    assert expected in host.conditions()["configuration"]
    assert expected in host.daemon.log.read_text()
    host.file.unlink()
    (gone,) = host.reload().problems
    assert "cannot read the configuration" in gone
    host.write("max_attempts_running = 7")
    os.kill(host.daemon.pid, signal.SIGHUP)
    wait_until(lambda: host.info().max_attempts_running == 7, "SIGHUP does not reload")
    wait_until(lambda: not host.conditions(), "the condition stays")


def test_reloads_under_load_disturb_no_run(host: Host, tmp_path: Path) -> None:
    """Limits go up and down while runs of every kind of limit start, wait and end."""
    witness = tmp_path / "witness"
    step = f"run: 'echo $TOBAN_RUN_ID.$TOBAN_ATTEMPT >> {witness}'"
    host.daemon.apply(f"name: loaded\ndescription: x\noverlap: allow\nsteps:\n  a: {{{step}, locks: [shared]}}\n")
    host.daemon.apply(f"name: emitted\ndescription: x\non: LOADED\noverlap: allow\nsteps: {{a: {{{step}}}}}\n")
    tight = ("max_attempts_running = 1\nevent_concurrency = 1", "[retention]\nruns = 500", "[log]\nlevel = 'error'")
    wide = ("max_attempts_running = 8\nevent_concurrency = 5", "[locks]\nshared = 5", "[limits]\nattempt_log = '1MiB'")

    def start(number: int) -> str:
        if number % 2:
            return str(host.daemon.emit("LOADED").runs[0].run_id)
        return host.daemon.start_run("loaded")

    with ThreadPoolExecutor(4) as pool:
        started = [pool.submit(start, number) for number in range(40)]
        for number in range(10):
            host.write(*(wide if number % 2 else tight))
            assert not host.reload().problems
        runs = [each.result() for each in started]
    host.write(*wide)
    host.reload()
    assert {run_state(host.daemon.wait_run(each)) for each in runs} == {"SUCCEEDED"}
    assert sorted(witness.read_text().split()) == sorted(f"{each}.1" for each in runs)


def test_wider_limits_let_what_waits_begin(host: Host, tmp_path: Path) -> None:
    gates = [Gate(f"{tmp_path}/{name}") for name in ("first", "second")]
    steps = f"steps: {{a: {{run: 'read _ < {tmp_path}/$name', env: {{name: '{{{{ params.name }}}}'}}}}}}"
    params = "params: {name: {type: string, required: true}}"
    host.daemon.apply(f"name: holds\ndescription: x\noverlap: allow\nlocks: [narrow]\n{params}\n{steps}\n")
    host.daemon.apply("name: quick\ndescription: x\noverlap: allow\nsteps: {a: {run: 'true'}}\n")
    first = host.daemon.start_run("holds", name="first")
    host.daemon.wait_started(first, "a")
    second = host.daemon.start_run("holds", name="second")
    assert waits_for(host.daemon.get_run(second)) == "LOCK"
    host.write("max_attempts_running = 1", "[locks]\nnarrow = 2")
    host.reload()
    wait_until(lambda: host.info().waiting_attempts == 1, "the second run did not get the lock")
    third = host.daemon.start_run("quick")
    wait_until(lambda: host.info().waiting_attempts == 2, "the third run does not wait")
    host.write("max_attempts_running = 3", "[locks]\nnarrow = 2")
    host.reload()
    assert run_state(host.daemon.wait_run(third)) == "SUCCEEDED"
    host.daemon.wait_started(second, "a")
    for gate in gates:
        gate.release_now()
    assert {run_state(host.daemon.wait_run(each)) for each in (first, second)} == {"SUCCEEDED"}


def test_rules_for_steps_and_providers_are_used_at_once(host: Host, tmp_path: Path) -> None:
    workflow = "name: ruled\ndescription: x\nsteps: {a: {run: 'echo $APP', env: {BAD: x}}}\n"
    host.write("", "[steps]\nenvironment_denied = ['BAD']\nenvironment = { APP = 'from rules' }")
    host.reload()
    refusal = refused(lambda: host.daemon.apply(workflow))
    assert "the variable BAD may not be set" in refusal.problems[0].message
    host.daemon.apply(workflow.replace("BAD", "GOOD"))
    run = host.daemon.run("ruled")
    assert host.daemon.log_of(run.id)[1] == b"from rules\n"
    secrets = secret_pb2_grpc.SecretServiceStub(host.daemon.channel)
    request = secret_pb2.SetSecretRequest(name="db", provided=secret_pb2.ProvidedSecret(provider="files", key="db"))
    assert "no provider" in refused(lambda: secrets.SetSecret(request, timeout=20)).text
    host.write("", f"[secrets.providers.files]\ndirectory = '{tmp_path}'")
    host.reload()
    assert secrets.SetSecret(request, timeout=20).secret.name == "db"
