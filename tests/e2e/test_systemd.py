"""Under a real systemd, as the unit that is shipped: restarts and crashes of the daemon never touch a step."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from helpers.hostile_step import ATTACK, NOTHING
from helpers.others_may_enter import let_others_enter
from helpers.systemd_machine import PYTHON, REPOSITORY, Machine, machine, missing
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
    let_others_enter(base)
    with machine(base, f"toban-{os.getpid()}") as booted:
        booted.run("systemd-sysusers")
        shutil.copy(REPOSITORY / "service-files/systemd/toban.tmpfiles", booted.root / "usr/lib/tmpfiles.d/toban.conf")
        booted.run("systemd-tmpfiles", "--create", "/usr/lib/tmpfiles.d/toban.conf")
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


def python_of(host: Machine) -> dict[str, str]:
    """An interpreter for steps, and the variables that it needs here."""
    pairs = (each.partition("=") for each in host.run("systemctl", "show", "-P", "Environment", UNIT).split())
    found = {name: value for name, _, value in pairs if name in ("PYTHONHOME", "LD_LIBRARY_PATH")}
    return found | {"python": host.run("systemctl", "show", "-P", "ExecStart", UNIT).split("path=")[1].split(" ")[0]}


def below(host: Machine, pid: int) -> list[int]:
    """The processes of the service that began as this one's children, or theirs."""
    children = [int(word) for word in host.run("ps", "-o", "pid=", "--ppid", str(pid), check=False).split()]
    return [*children, *(each for child in children for each in below(host, child))]


def ran(host: Machine, name: str, *steps: Mapping[str, object]) -> list[str]:
    """What the steps of a new workflow printed."""
    (host.root / f"srv/{name}.json").write_text(
        json.dumps({"name": name, "description": "x", "steps": list(steps)}), encoding="utf-8"
    )
    toban(host, "apply", f"/srv/{name}.json")
    toban(host, "run", name, "--wait")
    return toban(host, "logs", name).splitlines()


def attacked(host: Machine, name: str) -> list[str]:
    """What a hostile step reached while another step runs."""
    begun(host)
    main = host.main_pid(UNIT)
    supervisors = [pid for pid in below(host, main) if "sleep" not in host.run("cat", f"/proc/{pid}/comm", check=False)]
    own = [pid for pid in supervisors if host.run("stat", "-c", "%U", f"/proc/{pid}", check=False) != "toban-step"]
    assert len(own) >= 2, "the spawner and a shim"
    env = python_of(host) | {
        "state": "/var/lib/toban",
        "pids": " ".join(map(str, (main, *own))),
        "config": "/etc/toban/toband.toml /sys/fs/cgroup/system.slice/toband.service/cgroup.kill",
        "sockets": " ".join(
            f"/run/toban/{each}{end}" for each in ("admin.sock", "toban.sock") for end in ("", ".login")
        ),
    }
    script = f"id -un; id -Gn; touch ~/x && echo at home\n{ATTACK}"
    found = ran(host, name, {"name": "a", "run": script, "env": env, "errexit": False})
    host.run("touch", "/srv/go")
    wait_until(lambda: shown(host, "long")["state"] == "succeeded", "it does not come to its end")
    return found


def test_steps_are_not_the_daemon(host: Machine) -> None:
    """As it is installed, without a setting of the administrator's."""
    toban(host, "apply", "/srv/flows/long.yaml")
    assert attacked(host, "attacks") == ["toban-step", "toban-step", "at home", *NOTHING.splitlines()]
    doctor = {each["check"]: each for each in json.loads(toban(host, "system", "doctor", "-o", "json"))}
    assert doctor["permissions"]["status"] == "ok", doctor["permissions"]["detail"]
    assert doctor["step user"]["detail"] == "steps run as toban-step, the daemon as toban"
    access = json.loads(toban(host, "access", "show", "-o", "json"))
    assert (access["daemon_user"], access["step_user"]) == ("toban", "toban-step")


def test_the_hardened_service_runs_steps_and_their_sandboxes(host: Machine) -> None:
    drop_in = REPOSITORY / "service-files/systemd/toband.service.d/hardening.conf"
    shutil.copy(drop_in, host.root / f"etc/systemd/system/{UNIT}.d")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", UNIT)
    assert attacked(host, "attacks-again") == ["toban-step", "toban-step", "at home", *NOTHING.splitlines()]
    script = """
cat /proc/net/dev | grep -c :; touch "$TMPDIR/x" && echo written; ls /tmp /home /var/lib/toban 2>/dev/null
(: > /srv/flows/x) 2>/dev/null && echo planted; grep NoNewPrivs /proc/self/status
"""
    step = {"name": "a", "run": script, "errexit": False, "sandbox": {"network": "none", "private_tmp": True}}
    assert [line.split() for line in ran(host, "confined", step)] == [["1"], ["written"], ["NoNewPrivs:", "1"]]
