"""Under a real systemd that delegates: each attempt has a cgroup, and killing it leaves no process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.others_may_enter import let_others_enter
from helpers.systemd_machine import Machine, machine, missing
from helpers.wait import wait_until

UNIT = "toband.service"
LASTING = """\
name: lasting
description: a step that leaves a process which nobody would find by its parents
steps:
  - name: only
    run: "setsid sleep 1234 & while ! [ -e /srv/go ]; do sleep 0.05; done; kill $!"
"""

pytestmark = pytest.mark.skipif(missing() != "", reason=f"a systemd of its own: {missing()}")


@pytest.fixture(scope="module", params=["toban", "root"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One whose daemon is the user of the unit, and one whose daemon is root."""
    base = tmp_path_factory.mktemp("m")
    # Others must be able to walk to the overlay's layers.
    let_others_enter(base)
    with machine(base, f"toban-cg-{request.param}-{os.getpid()}") as booted:
        booted.run("systemd-sysusers")
        drop_in = booted.root / "etc/systemd/system/toband.service.d/user.conf"
        drop_in.write_text(f"[Service]\nUser={request.param}\nGroup={request.param}\n")
        booted.run("systemctl", "daemon-reload")
        booted.run("systemctl", "start", UNIT)
        (booted.root / "srv/lasting.yaml").write_text(LASTING)
        toban(booted, "apply", "/srv/lasting.yaml")
        yield booted


def toban(host: Machine, *arguments: str) -> str:
    environment = host.run("systemctl", "show", "-P", "Environment", UNIT).split()
    python = host.run("systemctl", "show", "-P", "ExecStart", UNIT).split("path=")[1].split(" ")[0]
    return host.run("env", *environment, python, "-m", "toban.cli", *arguments)


def begun(host: Machine) -> Any:
    host.run("rm", "-f", "/srv/go")
    toban(host, "run", "lasting")
    return wait_until(lambda: next((p for p in attempts(host) if p["pid"]), None), "no start")


def attempts(host: Machine) -> list[Any]:
    found: list[Any] = json.loads(toban(host, "runs", "processes", "lasting", "-o", "json"))
    return found


def state(host: Machine) -> str:
    return str(json.loads(toban(host, "runs", "show", "lasting", "-o", "json"))["state"])


def cgroup_of(host: Machine, pid: int) -> str:
    return host.run("cat", f"/proc/{pid}/cgroup").rpartition("0::")[2]


def inside(host: Machine, cgroup: str) -> list[int]:
    return [int(pid) for pid in host.run("cat", f"/sys/fs/cgroup{cgroup}/cgroup.procs").split()]


def cgroups_left(host: Machine) -> str:
    where = f"/sys/fs/cgroup/system.slice/{UNIT}/attempts"
    # They go while it looks.
    how = ("-mindepth", "1", "-maxdepth", "1", "-ignore_readdir_race", "-type", "d")
    return host.run("find", where, *how)


def test_a_service_that_divides_its_cgroup_can_be_restarted(host: Machine) -> None:
    attempt = begun(host)
    own = cgroup_of(host, attempt["pid"])
    assert own.startswith(f"/system.slice/{UNIT}/attempts/")
    before = host.main_pid(UNIT)
    assert cgroup_of(host, before) == f"/system.slice/{UNIT}"
    info = json.loads(toban(host, "system", "info", "-o", "json"))
    assert info["cgroup"].endswith(f"/system.slice/{UNIT}/attempts")

    host.run("systemctl", "restart", UNIT)
    after = host.main_pid(UNIT)
    assert after not in (0, before)
    assert cgroup_of(host, attempt["pid"]) == own
    host.run("touch", "/srv/go")
    wait_until(lambda: state(host) == "succeeded", "it does not end")
    wait_until(lambda: cgroups_left(host) == "", "a cgroup was left")
    (ended,) = attempts(host)
    assert ended["ending"]["cgroup"] is True


def test_nothing_is_left_when_daemon_spawner_and_shim_are_killed_at_once(host: Machine) -> None:
    attempt = begun(host)
    own = cgroup_of(host, attempt["pid"])
    wait_until(lambda: len(inside(host, own)) >= 3, "its processes are not there")
    left = inside(host, own)
    supervisors = inside(host, f"/system.slice/{UNIT}")
    before = host.main_pid(UNIT)
    assert before in supervisors
    assert len(supervisors) >= 3

    # One that was just going need not be killed any more.
    host.run("kill", "-9", *map(str, supervisors), check=False)
    wait_until(lambda: host.main_pid(UNIT) not in (0, before), "it is not started again")
    wait_until(lambda: host.run("systemctl", "is-active", UNIT, check=False) == "active", "no")
    wait_until(lambda: state(host) == "failed", "the run does not end")
    (lost,) = attempts(host)

    assert lost["state"] == "lost"
    assert lost["ending"]["orphans"] in ("ended", "none")
    wait_until(lambda: cgroups_left(host) == "", "a cgroup was left")
    alive = host.run("ps", "-o", "pid=", "-p", ",".join(map(str, left)), check=False)
    assert alive == ""
