"""Under a real systemd, as the unit that is shipped: restarts and crashes of the daemon never touch a step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.systemd_machine import PYTHON, Machine, machine, missing
from helpers.wait import wait_until

UNIT = "toband.service"
LONG = """\
name: long
description: two steps, of which the first lasts
steps:
  - {name: first, run: "echo begun; while ! [ -e /srv/go ]; do sleep 0.05; done; echo ended"}
  - {name: second, run: echo second}
"""

pytestmark = pytest.mark.skipif(missing() != "", reason=f"a systemd of its own: {missing()}")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    base = tmp_path_factory.mktemp("m")
    # Others must be able to walk to the overlay's layers.
    for directory in (base, *base.parents[:3]):
        os.chmod(directory, 0o755)
    with machine(base, f"toban-{os.getpid()}") as booted:
        booted.run("systemd-sysusers")
        booted.run("systemctl", "start", UNIT)
        yield booted


def toban(host: Machine, *arguments: str) -> str:
    environment = host.run("systemctl", "show", "-P", "Environment", UNIT).split()
    python = host.run("systemctl", "show", "-P", "ExecStart", UNIT).split("path=")[1].split(" ")[0]
    assert python.startswith(PYTHON)
    return host.run("env", *environment, python, "-m", "toban.cli", *arguments)


def shown(host: Machine, run: str) -> Any:
    return json.loads(toban(host, "runs", "show", run, "-o", "json"))


def processes(host: Machine, run: str) -> list[Any]:
    found: list[Any] = json.loads(toban(host, "runs", "processes", run, "-o", "json"))
    return found


def begun(host: Machine) -> Any:
    host.run("rm", "-f", "/srv/go")
    toban(host, "run", "long")
    return wait_until(lambda: next((p for p in processes(host, "long") if p["pid"]), None), "it does not start")


def start_time(host: Machine, pid: int) -> str:
    return host.run("cat", f"/proc/{pid}/stat").rpartition(")")[2].split()[19]


def test_steps_outlive_restarts_and_crashes_of_the_service(host: Machine) -> None:
    host.run("mkdir", "-p", "/srv/flows")
    (host.root / "srv/flows/long.yaml").write_text(LONG)
    toban(host, "apply", "/srv/flows/long.yaml")
    first = begun(host)
    born = start_time(host, first["pid"])
    before = host.main_pid(UNIT)

    host.run("systemctl", "restart", UNIT)
    restarted = host.main_pid(UNIT)
    assert restarted not in (0, before)
    assert start_time(host, first["pid"]) == born

    host.run("kill", "-9", str(restarted))
    crashed = wait_until(lambda: (pid := host.main_pid(UNIT)) != restarted and pid, "it is not started again")
    wait_until(lambda: host.run("systemctl", "is-active", UNIT, check=False) == "active", "no")
    assert crashed
    assert start_time(host, first["pid"]) == born
    info = wait_until(
        lambda: (
            (found := json.loads(toban(host, "system", "info", "-o", "json")))["recovery"].get("finished_at") and found
        ),
        "recovery does not end",
    )
    assert info["recovery"]["reattached"] == 1
    assert shown(host, "long")["state"] == "running"

    host.run("touch", "/srv/go")
    wait_until(lambda: shown(host, "long")["state"] == "succeeded", "it does not come to its end")
    assert toban(host, "logs", "long", "--step", "first") == "begun\nended"
    (again,) = [p for p in processes(host, "long") if p["step"] == "first"]
    assert (again["pid"], again["attempt"]) == (first["pid"], 1)
