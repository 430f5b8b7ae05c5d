"""Closed memory: no core, and nothing for other processes of the same user to look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Forked children in one program: a process that is executed anew could be looked at again.
PROGRAM = """
import ctypes, json, os, resource, signal, sys
from toband.supervise.shim import private_memory

os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

def child(close, act):
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        # What changed its user is not dumpable either: it becomes so again, as by execve.
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        if close:
            private_memory.close_memory()
        os.write(tell, b"!")
        act()
        os._exit(0)
    os.read(told, 1)
    return pid

def seen(pid):
    found = {}
    for part in ("mem", "environ", "maps", "fd", "cwd", "cmdline", "stat", "comm"):
        path = f"/proc/{pid}/{part}"
        try:
            if part == "fd":
                os.listdir(path)
            elif part == "cwd":
                os.readlink(path)
            else:
                os.close(os.open(path, os.O_RDONLY))
            found[part] = True
        except PermissionError:
            found[part] = False
    libc = ctypes.CDLL(None, use_errno=True)
    found["ptrace"] = libc.ptrace(16, pid, 0, 0) == 0
    return found

def dumped(close):
    _, status = os.waitpid(child(close, lambda: (signal.signal(signal.SIGABRT, signal.SIG_DFL), os.abort())), 0)
    return os.WCOREDUMP(status)

facts = {}
for close in (False, True):
    pid = child(close, signal.pause)
    facts[f"seen {close}"] = seen(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    facts[f"dumped {close}"] = dumped(close)
private_memory.close_memory()
facts["own"] = resource.getrlimit(resource.RLIMIT_CORE)
facts["hard"] = hard
facts["for steps"] = private_memory.limit_for_steps()
with private_memory.limit_restored():
    facts["restored"] = resource.getrlimit(resource.RLIMIT_CORE)[0]
facts["after"] = resource.getrlimit(resource.RLIMIT_CORE)[0]
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("cores")
    os.chmod(place, 0o777)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["files"] = len(list(place.iterdir()))
    return found


def test_another_process_of_the_user_sees_what_is_public(facts: dict[str, Any]) -> None:
    public = {"cmdline", "stat", "comm"}
    if not all(facts["seen False"].values()):
        pytest.skip("this system closes processes of the same user to each other already")
    assert facts["seen True"] == {name: name in public for name in facts["seen True"]}


def test_it_leaves_no_core(facts: dict[str, Any]) -> None:
    assert not facts["dumped True"]
    assert facts["own"] == [0, facts["hard"]]
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith("core") and facts["dumped False"]:
        assert facts["files"] == 1, "that of the process that is not closed"


def test_steps_get_the_limit_of_the_daemon(facts: dict[str, Any]) -> None:
    assert facts["for steps"] == facts["restored"] == facts["hard"]
    assert facts["after"] == 0
