"""The life of the service under a real systemd: installed, restarted, hung, upgraded, gone back, removed.

The tests are one story, in their order, in one machine that nobody else sees.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.built_wheels import (
    REPOSITORY,
    begin_wheel,
    finished,
    renumbered,
    source_before_service,
    unpacked,
)
from helpers.json_output import check_output
from helpers.others_may_enter import let_others_enter
from helpers.systemd_machine import PACKAGES, Machine, machine, missing
from helpers.wait import wait_until

UNIT: Final = "toband.service"
STEPS: Final = 50
# Each waits until somebody opens the pipe for writing: without a process more, and without using the processor.
WORKFLOWS: Final = {
    "who": "steps: [{name: only, run: 'id -un; id -gn; echo $TOBAN_RUN_ID'}]",
    "long": "steps: [{name: first, run: 'echo begun; cat /srv/go; echo ended'}, {name: second, run: echo second}]",
    "many": f"""concurrency: {STEPS}
steps:
  - name: each
    for_each: {list(range(STEPS))}
    max_parallel: {STEPS}
    run: 'echo begun {{{{ item }}}}; cat /srv/go; echo ended'
""",
}
NEXT: Final = "9.9.9"

_python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_reason = missing() or ("" if os.path.exists(_python) else f"needs {_python}")
pytestmark = [
    pytest.mark.skipif(_reason != "", reason=f"a systemd of its own: {_reason}"),
    pytest.mark.slow,
    # Others may use the processors too.
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with this release in /srv/new, the one before `toban service` in /srv/old, and wheels in /srv."""
    base = tmp_path_factory.mktemp("m")
    # Others must be able to walk to the overlay's layers.
    let_others_enter(base)
    work = tmp_path_factory.mktemp("wheels")
    building = begin_wheel(REPOSITORY, work / "new")
    known = source_before_service(work / "source")
    old = begin_wheel(work / "source", work / "old") if known else None
    new_wheel = finished(building, work / "new")
    old_wheel = renumbered(new_wheel, "0.0.9", work / "old") if old is None else finished(old, work / "old")
    next_wheel = renumbered(new_wheel, NEXT, work / "next")
    with machine(base, f"toban-service-{os.getpid()}", bare=True) as booted:
        srv = booted.root / "srv"
        unpacked(new_wheel, srv / "new", "/srv/new", PACKAGES)
        (srv / next_wheel.name).write_bytes(next_wheel.read_bytes())
        unpacked(old_wheel, booted.root / "opt/toban", "/opt/toban", PACKAGES)
        (srv / "old").mkdir()
        files = (work / "source" if known else REPOSITORY) / "service-files"
        for name in ("toband.toml", "systemd/toband.service", "systemd/toban.sysusers"):
            (srv / "old" / Path(name).name).write_text((files / name).read_text())
        # Not in the way of the first installation.
        os.rename(booted.root / "opt/toban", srv / "old/toban")
        os.mkfifo(srv / "go", 0o644)
        (srv / "go").chmod(0o644)
        for name, steps in WORKFLOWS.items():
            (srv / f"{name}.yaml").write_text(f"name: {name}\ndescription: of the test\n{steps}\n")
        booted.run("useradd", "--create-home", "aiko")
        yield booted


def toban(host: Machine, *arguments: str) -> str:
    """With the commands that were installed."""
    return host.run("toban", *arguments)


def data(host: Machine, *arguments: str) -> Any:
    return json.loads(toban(host, *arguments, "-o", "json"))


def changes(host: Machine, *arguments: str, program: str = "toban") -> dict[str, str]:
    """What a command of the service changed: the last action by subject."""
    found = json.loads(host.run(program, "service", *arguments, "-o", "json"))
    check_output(f"service {arguments[0]}", found)
    return {each["subject"]: each["action"] for each in found["changes"] if each["action"] != "unchanged"}


def refused(host: Machine, *arguments: str) -> str:
    return host.run("sh", "-c", '"$@" 2>&1; echo "exit code $?"', "sh", *arguments, check=False)


def state(host: Machine, run: str) -> str:
    return str(data(host, "runs", "show", run)["state"])


def step_pids(host: Machine, run: str) -> dict[str, tuple[int, str]]:
    """The processes of running steps: the pid and when it was started, by step."""
    listed = data(host, "runs", "processes", run)
    running = [each for each in listed if each["state"] == "running" and each["pid"]]
    if not running:
        return {}
    # One call for all of them.
    stats = host.run("cat", *(f"/proc/{each['pid']}/stat" for each in running), check=False).splitlines()
    started = {int(line.split(" ")[0]): line.rpartition(")")[2].split()[19] for line in stats}
    return {each["step"]: (each["pid"], started.get(each["pid"], "gone")) for each in running}


def begun(host: Machine, run: str, steps: int = 1) -> dict[str, tuple[int, str]]:
    """Starts a workflow; its processes, when all of them have printed their first line."""
    toban(host, "run", run)
    wait_until(lambda: toban(host, "logs", run).count("begun") == steps, "the steps do not begin", 90)
    return step_pids(host, run)


def let_go(host: Machine) -> None:
    host.run("sh", "-c", ": > /srv/go")


def main_pid(host: Machine, other_than: int = 0) -> int:
    """Of a daemon that is ready."""

    def ready() -> int:
        pid = host.main_pid(UNIT)
        active = host.run("systemctl", "is-active", UNIT, check=False) == "active"
        return pid if active and pid not in (0, other_than) else 0

    return wait_until(ready, "the daemon is not started again", 60)


def recovered(host: Machine) -> None:
    wait_until(lambda: data(host, "system", "info")["recovery"].get("finished_at"), "recovery does not end")


def drop_in(host: Machine, name: str, text: str) -> None:
    directory = host.root / f"etc/systemd/system/{UNIT}.d"
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.conf").write_text(f"[Service]\n{text}\n")
    host.run("systemctl", "daemon-reload")


def test_it_is_installed_and_runs_a_workflow_whose_steps_are_of_another_user(host: Machine) -> None:
    planned = changes(host, "install", "--dry-run", program="/srv/new/bin/toban")
    assert planned[f"/etc/systemd/system/{UNIT}"] == "created"
    assert not (host.root / "etc/toban").exists()

    done = changes(host, "install", program="/srv/new/bin/toban")
    assert done.keys() == planned.keys() | {UNIT}
    assert changes(host, "install", program="/srv/new/bin/toban") == {}
    assert changes(host, "install") == {}

    found = data(host, "service", "status")
    assert (found["active"], found["enabled"], found["status"]) == (True, True, "idle")
    assert host.run("ps", "-o", "user=", "-p", str(found["pid"])) == "toban"
    for name in WORKFLOWS:
        toban(host, "apply", f"/srv/{name}.yaml")
    toban(host, "run", "who", "--wait")
    assert toban(host, "logs", "who").splitlines()[:2] == ["toban-step", "toban-step"]


def test_its_log_is_asked_about_one_run(host: Machine) -> None:
    (entry,) = [
        json.loads(line)
        for line in toban(host, "service", "logs", "--run", "who#1", "-o", "json").splitlines()
        if json.loads(line)["TOBAN_ACTION"] == "run_ended"
    ]
    assert (entry["TOBAN_RUN"], entry["TOBAN_WORKFLOW"], entry["PRIORITY"]) == ("who#1", "who", "6")
    assert entry["TOBAN_RUN_ID"] == data(host, "runs", "show", "who")["id"]
    assert "run ended" in host.run("journalctl", "--output=cat", "TOBAN_RUN=who#1")
    assert host.run("journalctl", "--quiet", "--output=cat", "TOBAN_RUN=who#2") == ""


def test_members_of_the_group_use_it_and_others_do_not(host: Machine) -> None:
    mine = ("setpriv", "--reuid=aiko", "--regid=aiko")
    assert "exit code 4" in refused(host, *mine, "--clear-groups", "toban", "runs", "list")
    assert "who#1" in host.run(*mine, "--groups=toban", "toban", "runs", "list")


def test_edited_files_stay(host: Machine) -> None:
    config = host.root / "etc/toban/toband.toml"
    config.write_text(f"{config.read_text()}\n# edited\n")
    unit = host.root / f"etc/systemd/system/{UNIT}"
    shipped = unit.read_text()
    unit.write_text(f"{shipped}# edited\n")
    assert changes(host, "install") == {f"/etc/systemd/system/{UNIT}": "kept"}
    assert config.read_text().endswith("# edited\n")
    assert unit.read_text().endswith("# edited\n")
    assert Path(f"{unit}.new").read_text() == shipped
    assert changes(host, "install", "--force")[f"/etc/systemd/system/{UNIT}"] == "updated"
    assert unit.read_text() == shipped


def test_a_reload_applies_the_configuration(host: Machine) -> None:
    pid = main_pid(host)
    config = host.root / "etc/toban/toband.toml"
    config.write_text(config.read_text().replace("# max_attempts_running = 256", "max_attempts_running = 200"))
    host.run("systemctl", "reload", UNIT)

    def effective() -> str:
        values = {each["key"]: each["value_json"] for each in data(host, "system", "config")}
        return str(values["max_attempts_running"])

    wait_until(lambda: effective() == "200", "it is not applied")
    assert main_pid(host) == pid


def test_it_is_hardened_from_here_on(host: Machine) -> None:
    drop_in = f"/etc/systemd/system/{UNIT}.d/hardening.conf"
    assert changes(host, "install", "--hardened") == {drop_in: "created", UNIT: "restarted"}
    toban(host, "run", "who", "--wait")
    assert host.run("systemctl", "show", "-P", "ProtectSystem", UNIT) == "strict"


def test_a_step_goes_on_over_restart_crash_and_hang(host: Machine) -> None:
    drop_in(host, "watchdog", "WatchdogSec=4\nTimeoutAbortSec=1")
    toban(host, "service", "restart")
    before = begun(host, "long")
    first = main_pid(host)

    host.run("systemctl", "restart", UNIT)
    restarted = main_pid(host, first)
    recovered(host)
    assert step_pids(host, "long") == before

    host.run("kill", "-9", str(restarted))
    crashed = main_pid(host, restarted)
    recovered(host)
    assert step_pids(host, "long") == before

    host.run("kill", "-STOP", str(crashed))
    main_pid(host, crashed)
    recovered(host)
    assert step_pids(host, "long") == before
    assert "watchdog" in host.run("journalctl", "--unit", UNIT, "--output=cat", "--grep=Watchdog timeout").lower()

    # As a watchdog ends a daemon that hangs, and can still say where.
    host.run("kill", "-ABRT", str(main_pid(host)))
    said = ("journalctl", "--quiet", "--unit", UNIT, "--output=cat", "--grep=Fatal Python error: Aborted")
    wait_until(lambda: host.run(*said, check=False), "it does not say where it was")
    wait_until(lambda: host.main_pid(UNIT) and main_pid(host), "it is not started again")
    recovered(host)
    assert step_pids(host, "long") == before

    assert state(host, "long") == "running"
    wait_until(lambda: "1 step running" in data(host, "service", "status")["status"], "the status text is old")
    let_go(host)
    wait_until(lambda: state(host, "long") == "succeeded", "it does not come to its end")
    assert toban(host, "logs", "long", "--step", "first") == "begun\nended"
    # The release before does not know of a watchdog.
    (host.root / f"etc/systemd/system/{UNIT}.d/watchdog.conf").unlink()
    host.run("systemctl", "daemon-reload")


def test_each_stop_policy_is_kept(host: Machine) -> None:
    drop_in(host, "policy", "Environment=TOBAN_STOP_POLICY=cancel TOBAN_STOP_DEADLINE=30s")
    toban(host, "service", "restart")
    begun(host, "long")
    host.run("systemctl", "stop", UNIT)
    host.run("systemctl", "start", UNIT)
    assert state(host, "long") == "cancelled"

    drop_in(host, "policy", "Environment=TOBAN_STOP_POLICY=wait TOBAN_STOP_DEADLINE=60s")
    toban(host, "service", "restart")
    begun(host, "long")
    host.run("systemctl", "stop", "--no-block", UNIT)
    wait_until(lambda: host.run("systemctl", "show", "-P", "StatusText", UNIT).startswith("stopping"), "it goes on")
    assert "exit code 3" in refused(host, "toban", "service", "status")
    let_go(host)
    wait_until(lambda: host.run("systemctl", "is-active", UNIT, check=False) == "inactive", "it does not end")
    host.run("systemctl", "start", UNIT)
    assert state(host, "long") == "succeeded"

    (host.root / f"etc/systemd/system/{UNIT}.d/policy.conf").unlink()
    host.run("systemctl", "daemon-reload")


def test_a_user_has_a_service_of_their_own_beside_that_of_the_system(host: Machine) -> None:
    host.run("loginctl", "enable-linger", "aiko")
    number = host.run("id", "-u", "aiko")
    wait_until(
        lambda: host.run("sh", "-c", f"test -S /run/user/{number}/systemd/private && echo yes", check=False),
        "no service manager",
    )
    mine = ("runuser", "-u", "aiko", "--", "env", "HOME=/home/aiko", f"XDG_RUNTIME_DIR=/run/user/{number}")
    host.run(*mine, "/srv/new/bin/toban", "service", "install", "--user")
    own = (*mine, "/home/aiko/.local/bin/toban")
    found = json.loads(host.run(*own, "service", "status", "--user", "-o", "json"))
    assert found["active"]
    assert found["pid"] != main_pid(host)
    server = ("--server", "unix:///home/aiko/.local/state/toban/toban.sock")
    host.run(*own, *server, "apply", "/srv/who.yaml")
    host.run(*own, *server, "run", "who", "--wait")
    assert host.run(*own, *server, "logs", "who").startswith("aiko\naiko")
    host.run(*own, "context", "add", "mine", *server)
    host.run(*own, "service", "uninstall", "--user", "--purge")
    assert not (host.root / "home/aiko/.local/state/toban").exists()
    assert not (host.root / "home/aiko/.config/toban/toband.toml").exists()
    assert "mine" in host.run(*mine, "/srv/new/bin/toban", "context", "list")
    assert main_pid(host)


def test_it_is_removed_only_when_no_step_runs_and_its_state_stays(host: Machine) -> None:
    begun(host, "long")
    answer = refused(host, "toban", "service", "uninstall")
    assert "1 step is running" in answer
    assert "exit code 6" in answer
    assert main_pid(host)
    let_go(host)
    wait_until(lambda: state(host, "long") == "succeeded", "it does not end")
    wait_until(lambda: data(host, "service", "status")["steps"] == 0, "processes are left")

    removed = changes(host, "uninstall")
    assert removed["/opt/toban/versions"] == "removed"
    assert host.run("systemctl", "is-active", UNIT, check=False) == "inactive"
    assert (host.root / "var/lib/toban/toban.db").exists()
    assert (host.root / "etc/toban/toband.toml").exists()
    assert not (host.root / "opt/toban").exists()
    # The state is that of the next installation.
    host.run("/srv/new/bin/toban", "service", "install")
    assert data(host, "runs", "list", "--workflow", "who")[0]["state"] == "succeeded"
    changes(host, "uninstall", "--purge")
    for path in ("var/lib/toban", "etc/toban", "run/toban", "opt/toban", "usr/local/bin/toban"):
        assert not (host.root / path).exists(), path
    assert host.run("id", "-un", "toban") == "toban"


def installed_by_hand(host: Machine) -> None:
    """As the documentation of the release before said."""
    root = host.root
    os.rename(root / "srv/old/toban", root / "opt/toban")
    (root / f"etc/systemd/system/{UNIT}").write_text((root / "srv/old/toband.service").read_text())
    (root / "etc/sysusers.d/toban.conf").write_text((root / "srv/old/toban.sysusers").read_text())
    (root / "etc/toban").mkdir(mode=0o755)
    (root / "etc/toban/toband.toml").write_text((root / "srv/old/toband.toml").read_text())
    host.run("systemd-sysusers")
    host.run("systemctl", "enable", "--now", UNIT)


def test_an_upgrade_and_going_back_disturb_no_step(host: Machine) -> None:
    installed_by_hand(host)
    assert "exit code 5" in refused(host, "/srv/new/bin/toban", "service", "upgrade")
    for name in ("who", "many"):
        host.run("/opt/toban/bin/toban", "apply", f"/srv/{name}.yaml")
    host.run("/opt/toban/bin/toban", "run", "many")
    wait_until(
        lambda: host.run("/opt/toban/bin/toban", "logs", "many").count("begun") == STEPS, "they do not begin", 90
    )

    answer = refused(host, "/srv/new/bin/toban", "service", "install")
    assert "--force" in answer
    assert "exit code 6" in answer
    host.run("/srv/new/bin/toban", "service", "install", "--force")
    recovered(host)
    before = step_pids(host, "many")
    assert len(before) == STEPS
    assert "gone" not in {started for _, started in before.values()}
    first = data(host, "service", "status")
    assert first["version"]
    assert first["previous_version"]

    toban(host, "service", "upgrade", "--from", f"/srv/toban-{NEXT}-py3-none-any.whl")
    recovered(host)
    assert step_pids(host, "many") == before
    found = data(host, "service", "status")
    assert (found["version"], found["previous_version"]) == (NEXT, first["version"])
    assert data(host, "system", "info")["version"] == NEXT

    toban(host, "service", "rollback")
    recovered(host)
    assert step_pids(host, "many") == before
    assert data(host, "system", "info")["version"] == first["version"]
    assert data(host, "service", "status")["previous_version"] == NEXT

    let_go(host)
    wait_until(lambda: state(host, "many") == "succeeded", "the run does not end", 90)
    (listed,) = [data(host, "runs", "processes", "many")]
    assert {(each["attempt"], each["exit_code"]) for each in listed} == {(1, 0)}
    printed = toban(host, "logs", "many")
    assert (printed.count("begun"), printed.count("ended")) == (STEPS, STEPS)


def test_a_version_that_does_not_start_is_left_again(host: Machine) -> None:
    before = data(host, "service", "status")["version"]
    # Only of the new version.
    drop_in(host, "broken", f"ExecStartPre=/bin/sh -c '! readlink /opt/toban/current | grep -q {NEXT}'")
    answer = refused(host, "toban", "service", "upgrade", "--from", f"/srv/toban-{NEXT}-py3-none-any.whl")
    assert f"cannot start version {NEXT}: version {before} runs again" in answer
    assert "exit code 6" in answer
    found = data(host, "service", "status")
    assert (found["version"], found["previous_version"]) == (before, NEXT)
    assert data(host, "system", "info")["version"] == before
    (host.root / f"etc/systemd/system/{UNIT}.d/broken.conf").unlink()
    host.run("systemctl", "daemon-reload")


def test_a_version_that_is_too_old_for_the_database_is_refused(host: Machine) -> None:
    host.run("systemctl", "stop", UNIT)
    set_schema = (
        "import sqlite3, sys; c = sqlite3.connect('/var/lib/toban/toban.db');"
        "c.execute('UPDATE toban_revision SET version_num = ?', (sys.argv[1],)); c.commit()"
    )
    database = ("setpriv", "--reuid=toban", "--regid=toban", "--clear-groups", _python)
    schema = host.run(
        *database,
        "-c",
        "import sqlite3; c = sqlite3.connect('/var/lib/toban/toban.db');"
        "print(*c.execute('SELECT version_num FROM toban_revision').fetchone())",
    )
    host.run(*database, "-c", set_schema, "9999")
    for command in (("rollback",), ("install",)):
        answer = refused(host, "toban", "service", *command)
        assert "schema 9999" in answer
        assert "exit code 6" in answer
    host.run(*database, "-c", set_schema, schema)
    toban(host, "service", "rollback")
    assert data(host, "service", "status")["version"] == NEXT
    toban(host, "service", "uninstall", "--purge")
    assert host.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "toban*") == ""


def test_the_web_console_is_a_unit_of_its_own_without_rights(host: Machine) -> None:
    unit = "toban-web.service"
    done = changes(host, "install", "--web", program="/srv/new/bin/toban")
    assert (done[f"/etc/systemd/system/{unit}"], done[unit]) == ("created", "started")
    assert changes(host, "install") == {}

    def status(*headers: str) -> str:
        words = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *headers, "http://127.0.0.1:7280/api/workflows")
        return host.run(*words, check=False)

    wait_until(lambda: status() != "000", "the web console does not answer", 60)
    assert status() == "401"
    session = toban(host, "-q", "sessions", "create")
    assert status("-H", f"Authorization: Bearer {session}") == "200"
    assert host.run("ps", "-o", "user=", "-p", str(host.main_pid(unit))) not in ("root", "toban")

    removed = changes(host, "uninstall")
    assert (removed[unit], removed[f"/etc/systemd/system/{unit}"]) == ("stopped", "removed")
    assert host.run("systemctl", "is-active", unit, check=False) == "inactive"
