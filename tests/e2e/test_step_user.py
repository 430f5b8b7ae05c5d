"""A daemon that is not root, as the systemd unit starts it: its steps run as another user, which it is safe from."""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.capable_daemon import DAEMON_USER, STEP_USER, capable_daemon, missing
from helpers.command import Toban
from helpers.daemon import Daemon, run_state
from helpers.hostile_step import ATTACK, NOTHING
from helpers.processes import children_of, gone, kill, seen, stat_of
from helpers.wait import wait_until
from toban.v1 import run_pb2

STEP_GROUP = "" if missing() else grp.getgrgid(pwd.getpwnam(STEP_USER).pw_gid).gr_name
pytestmark = pytest.mark.skipif(missing() != "", reason=f"a daemon with capabilities: {missing()}")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with capable_daemon() as running:
        yield running


def apply(daemon: Daemon, name: str, *steps: dict[str, Any], **more: Any) -> None:
    daemon.apply(json.dumps({"name": name, "description": "x", "steps": list(steps), **more}))


def printed(daemon: Daemon, run_id: str, step: str = "") -> str:
    return b"".join(daemon.log_of(run_id, step).values()).decode()


def test_a_step_has_nothing_of_the_daemons(daemon: Daemon) -> None:
    script = """
id -un; id -G
grep -E '^(Uid|Gid|Cap...|NoNewPrivs|Seccomp|Groups|Sig...):' /proc/self/status | tr '\\t' ' '
umask; ls /proc/self/fd | tr '\\n' ' '; echo; ps -o tty= -p $$; env | sort | cut -d= -f1 | tr '\\n' ' '
echo to-stdout > /dev/stdout; echo to-stderr > /dev/stderr
"""
    apply(daemon, "shows", {"name": "a", "run": script})
    run = daemon.run("shows")
    assert run_state(run) == "SUCCEEDED", run.error_message
    text = printed(daemon, run.id)
    who = pwd.getpwnam(STEP_USER)
    assert text.startswith(f"{STEP_USER}\n{who.pw_gid}\n"), text
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    assert facts["Uid"].split() == [str(who.pw_uid)] * 4
    assert facts["Groups"].split() == [str(who.pw_gid)]
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(facts[kind], 16) == 0, f"{kind}: {facts[kind]}"
    assert int(facts["SigBlk"], 16) == int(facts["SigIgn"], 16) == 0
    assert "\n0022\n" in text
    assert "to-stdout" in text
    assert "to-stderr" in text
    assert "\n0 1 2 3 \n" in text, "the last one is that of ls"
    names = next(line for line in text.splitlines() if "LOGNAME" in line).removesuffix("to-stdout").split()
    known = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    assert not [name for name in names if name not in known and not name.startswith("TOBAN_")]
    assert not {"TOBAN_STEP_USER", "TOBAN_LOG_FORMAT"} & {*names}


def test_an_attacking_step_gets_nowhere(daemon: Daemon) -> None:
    (spawner,) = daemon.children()
    apply(daemon, "lasts", {"name": "a", "run": "exec sleep 60"})
    other = daemon.start_run("lasts")
    victim = daemon.wait_started(other, "a")
    shims = [each.pid for each in children_of(spawner)]
    assert len(shims) >= 1
    pids = " ".join(map(str, (daemon.pid, spawner, *shims)))
    env = {"state": str(daemon.state_dir), "pids": pids, "python": daemon.program[8]}
    env |= {"config": str(daemon.state_dir / "toband.lock"), "sockets": daemon.socket.removeprefix("unix://")}
    env |= {name: daemon.environment[name] for name in ("LD_LIBRARY_PATH", "PYTHONHOME")}
    apply(daemon, "attacks", {"name": "a", "run": ATTACK, "env": env, "errexit": False})
    run = daemon.run("attacks")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert printed(daemon, run.id) == NOTHING
    assert os.path.exists(f"/proc/{victim}")
    daemon.cancel(other)
    assert run_state(daemon.wait_run(other)) == "CANCELLED"


def test_artifacts_are_read_and_placed_with_the_rights_of_the_step(daemon: Daemon) -> None:
    apply(
        daemon,
        "hands-on",
        {
            "name": "a",
            "run": "umask 077; mkdir tree; echo private > tree/data; echo answer=42 > $TOBAN_OUTPUT",
            "outputs": [{"name": "tree", "path": "tree"}],
        },
        {
            "name": "b",
            "depends_on": ["a"],
            "inputs": [{"from": "a", "artifact": "tree"}],
            "run": "cat tree/data; cat $TOBAN_CONTEXT_DIR/a/tree/tree/data; echo {{ steps.a.outputs.answer }}",
        },
    )
    run = daemon.run("hands-on")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert printed(daemon, run.id, "b") == "private\nprivate\n42\n"


def test_the_daemons_files_cannot_be_named_as_outputs(daemon: Daemon) -> None:
    """What the daemon may read, and the step may not."""
    secret = daemon.state_dir.parent / "of-the-daemon"
    secret.mkdir()
    (secret / "data").write_text("x")
    who = pwd.getpwnam(DAEMON_USER)
    for path, mode in ((secret / "data", 0o600), (secret, 0o755)):
        path.chmod(mode)
        os.chown(path, who.pw_uid, who.pw_gid)
    step = {"name": "a", "run": "true", "workspace": str(secret), "outputs": [{"name": "data", "path": "data"}]}
    apply(daemon, "takes", step)
    run = daemon.run("takes")
    assert run_state(run) == "FAILED"
    assert "Permission denied" in run.error_message
    giving = {"name": "a", "run": "echo x > data", "outputs": [{"name": "data", "path": "data"}]}
    taking = {"name": "b", "run": "true", "workspace": str(secret), "inputs": [{"from": "a", "artifact": "data"}]}
    apply(daemon, "writes", giving, taking | {"depends_on": ["a"]})
    run = daemon.run("writes")
    assert run_state(run) == "FAILED"
    assert "cannot lay out the input data" in run.error_message
    assert (secret / "data").read_text() == "x"


def test_everything_that_a_step_left_is_removed(daemon: Daemon) -> None:
    script = """
umask 077
mkdir -p deep/er locked; touch deep/er/file; chmod 0 locked deep/er
mkdir -m 1777 sticky; touch sticky/x
"""
    apply(daemon, "leaves", {"name": "a", "run": script})
    run = daemon.run("leaves")
    assert run_state(run) == "SUCCEEDED", run.error_message
    directory = daemon.state_dir / "runs" / run.id
    assert directory.exists()
    daemon.runs.DeleteRun(run_pb2.DeleteRunRequest(id=run.id), timeout=60)
    assert not directory.exists()


def test_a_sandboxed_step_has_no_network_and_leaves_no_temporary_files(daemon: Daemon) -> None:
    """By a user namespace: the daemon lacks the right to make others."""
    script = """
id -u; id -G; cat /proc/net/dev | grep -c : ; grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status | tr -d '\\t'
umask 077; mkdir "$TMPDIR/inner"; echo x > "$TMPDIR/inner/file"; ls /tmp 2>/dev/null || echo closed; ls -d "$TMPDIR"
"""
    sandbox = {"network": "none", "private_tmp": True}
    apply(daemon, "sandboxed", {"name": "a", "run": script, "errexit": False}, defaults={"sandbox": sandbox})
    run = daemon.run("sandboxed")
    assert run_state(run) == "SUCCEEDED", run.error_message
    who = pwd.getpwnam(STEP_USER)
    *lines, directory = printed(daemon, run.id).splitlines()
    none = "0" * 16
    assert lines == [
        *(str(who.pw_uid), str(who.pw_gid), "1"),
        *(f"CapPrm:{none}", f"CapEff:{none}", f"CapBnd:{none}"),
        "closed",
    ]
    assert not os.path.exists(directory)


def test_the_doctor_ends_what_killed_supervisors_left() -> None:
    """The daemon may not read the environment of a step of another user, by which it knows it."""
    with capable_daemon(environment={"TOBAN_CGROUP": "off"}) as daemon:
        apply(daemon, "lasts", {"name": "a", "run": "exec sleep 600"})
        run_id = daemon.start_run("lasts")
        step = seen(daemon.wait_started(run_id, "a"))
        found = stat_of(step.pid)
        assert found is not None
        shim, (spawner,) = seen(found.parent), map(seen, daemon.children())
        for process in (seen(daemon.pid), spawner, shim):
            kill(process, signal.SIGSTOP)
        daemon.kill()
        for process in (spawner, shim):
            kill(process)
            wait_until(partial(gone, process), "it lives")
        assert not gone(step)
        daemon.start()
        assert run_state(daemon.wait_run(run_id)) == "FAILED"
        answer = Toban(daemon)("system", "doctor", "--repair", "-o", "json").data
        (stray,) = (each for each in answer if each["check"] == "stray processes")
        assert (stray["status"], str(step.pid) in stray["detail"]) == ("repaired", True)
        assert gone(step)


@pytest.mark.parametrize("seconds", ["0", "60"])
def test_secret_files_belong_to_the_step_and_go_with_it(daemon: Daemon, seconds: str) -> None:
    """Also if the step adds to them, and its supervisor is killed."""
    Toban(daemon)("secrets", "set", "key", "--workflows", "*", stdin="s3cret of the step")
    script = """
cd "$TOBAN_SECRET_FILES"; stat -c '%a %U %G %n' . key; chmod u+w .; mkdir -p a/b; : > a/b/c; chmod 0 a; pwd
exec sleep $1
"""
    step = {"name": "a", "run": script, "args": [seconds], "secret_files": {"key": "{{ secrets.key }}"}}
    apply(daemon, f"lasts-{seconds}", step)
    run_id = daemon.start_run(f"lasts-{seconds}")
    if seconds != "0":
        pid = daemon.wait_started(run_id, "a")
        wait_until(lambda: printed(daemon, run_id).count("\n") == 3, "it prints nothing")
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    assert run_state(daemon.wait_run(run_id)) == ("SUCCEEDED" if seconds == "0" else "FAILED")
    *facts, place = printed(daemon, run_id).splitlines()
    assert facts == [f"500 {STEP_USER} {STEP_GROUP} .", f"400 {STEP_USER} {STEP_GROUP} key"]
    assert place.startswith("/dev/shm/toban-")
    wait_until(lambda: not os.path.lexists(place), "the files are left")


@pytest.mark.parametrize("user", ["root", "0", DAEMON_USER, "bin"])
def test_other_users_are_refused_unless_they_are_listed(daemon: Daemon, user: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        apply(daemon, f"other-{user}", {"name": "a", "run": "id", "user": user})
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
