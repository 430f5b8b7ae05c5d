"""Files written into cgroups, on a directory that looks like one: hosts with every controller are rare."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from toband.supervise.shim import cgroups
from toband.supervise.shim.cgroups import Cgroups

NAMESPACE = "cgroup:[1]"


class Hierarchy:
    """Files like those of a cgroup2 mount; what is written to them can be read again."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = str(root)
        self.delegated: set[str] = set()
        self.moved: list[str] = []
        os.makedirs(self.root, exist_ok=True)
        self._fill(self.root)
        make, write = os.mkdir, cgroups._write

        def mkdir(path: str, mode: int = 0o777) -> None:
            make(path, mode)
            self._fill(path)

        def written(path: str, text: str) -> None:
            if path.endswith("cgroup.procs"):
                self.moved.append(os.path.dirname(path))
            write(path, text)

        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(cgroups, "_write", written)
        monkeypatch.setattr(cgroups, "_mount", lambda: (self.root, "/"))
        monkeypatch.setattr(cgroups, "_namespace", lambda: NAMESPACE)
        monkeypatch.setattr(cgroups, "_delegated", self.delegated.__contains__)

    def _fill(self, path: str) -> None:
        for name in (
            "cgroup.procs",
            "cgroup.subtree_control",
            "memory.max",
            "memory.oom.group",
            "cpu.max",
            "pids.max",
        ):
            Path(path, name).touch()
        Path(path, "cgroup.controllers").write_text("cpuset cpu io memory pids\n")

    def make(self, name: str, *, delegated: bool = False, holds: str = "") -> str:
        path = f"{self.root}/{name}"
        os.makedirs(path)
        self._fill(path)
        Path(path, "cgroup.procs").write_text(holds)
        if delegated:
            self.delegated.add(path)
        return path

    def read(self, *parts: str) -> str:
        return Path(*parts).read_text()


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hierarchy:
    return Hierarchy(tmp_path / "unified", monkeypatch)


def test_a_leaf_below_a_delegated_unit_gets_all_controllers(hierarchy: Hierarchy) -> None:
    unit = hierarchy.make("toband.service", delegated=True)
    own = hierarchy.make("toband.service/main", holds=f"{os.getpid()}\n")
    found = cgroups.find(own=own)

    assert found == Cgroups(
        attempts=f"{unit}/attempts",
        home=own,
        controllers=frozenset({"memory", "cpu", "pids"}),
        mount=hierarchy.root,
        namespace=NAMESPACE,
    )
    # The last of three that were written one after the other.
    for path in (unit, f"{unit}/attempts"):
        assert hierarchy.read(path, "cgroup.subtree_control").startswith("+")
    assert hierarchy.moved == []


def test_a_service_whose_processes_are_in_its_own_cgroup_gets_no_controllers(
    hierarchy: Hierarchy,
) -> None:
    """systemd before 254 could not start it again otherwise."""
    unit = hierarchy.make("toband.service", delegated=True, holds=f"{os.getpid()}\n")
    found = cgroups.find(own=unit)

    assert (found.attempts, found.home) == (f"{unit}/attempts", unit)
    assert found.controllers == frozenset()
    assert "DelegateSubgroup" in found.reason
    assert hierarchy.read(unit, "cgroup.subtree_control") == ""
    assert hierarchy.moved == []


def test_processes_of_others_are_never_moved(hierarchy: Hierarchy) -> None:
    scope = hierarchy.make("x.scope", delegated=True, holds=f"{os.getpid()}\n1\n")
    found = cgroups.find(own=scope)

    assert (found.attempts, found.controllers) == (f"{scope}/attempts", frozenset())
    assert "not the daemon's" in found.reason
    assert hierarchy.moved == []


def test_a_unit_that_holds_processes_beside_the_leaf_gets_no_controllers(
    hierarchy: Hierarchy,
) -> None:
    unit = hierarchy.make("toband.service", delegated=True, holds="1\n")
    own = hierarchy.make("toband.service/main", holds=f"{os.getpid()}\n")
    found = cgroups.find(own=own)

    assert (found.attempts, found.controllers) == (f"{unit}/attempts", frozenset())
    assert hierarchy.read(unit, "cgroup.subtree_control") == ""


def test_nothing_is_made_where_roots_daemon_was_given_nothing(
    hierarchy: Hierarchy, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = hierarchy.make("system.slice", holds="1\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for path in (own, hierarchy.root):
        before = sorted(os.listdir(path))
        found = cgroups.find(own=path)
        assert (found.attempts, found.controllers) == ("", frozenset())
        assert "was not delegated" in found.reason
        assert sorted(os.listdir(path)) == before


def test_what_a_user_may_write_is_the_users(hierarchy: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    own = hierarchy.make("user.service")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cgroups.find(own=own).attempts == f"{own}/attempts"


def test_it_can_be_switched_off(hierarchy: Hierarchy) -> None:
    own = hierarchy.make("toband.service", delegated=True)
    found = cgroups.find("off", own=own)

    assert (found.attempts, found.reason) == ("", "switched off by the configuration")
    assert not os.path.exists(f"{own}/attempts")
    # What was made before it was switched off is still known.
    assert found.knows(f"{own}/attempts/token", NAMESPACE, "token")


def test_limits_are_written_as_they_are(hierarchy: Hierarchy) -> None:
    path = hierarchy.make("one")
    wanted = {"memory.max": "64", "memory.swap.max": "0", "cpu.max": "1 2", "pids.max": "9"}
    cgroups.limit(path, wanted)

    assert {name: hierarchy.read(path, name) for name in ("memory.max", "cpu.max", "pids.max")} == {
        "memory.max": "64",
        "cpu.max": "1 2",
        "pids.max": "9",
    }
    # Kernels that do not count swap have no such file, and none is made.
    assert not os.path.exists(f"{path}/memory.swap.max")
    with pytest.raises(FileNotFoundError):
        cgroups.limit(path, {"memory.high": "1"})


def test_counters_are_read(hierarchy: Hierarchy) -> None:
    path = hierarchy.make("one")
    Path(path, "memory.events").write_text("low 0\noom_kill 3\noom_group_kill 1\n")
    assert cgroups.events(path, "memory.events") == {"low": 0, "oom_kill": 3, "oom_group_kill": 1}
    assert cgroups.events(path, "pids.events") == {}


@pytest.mark.parametrize(
    ("path", "namespace"),
    [
        ("/elsewhere/attempts/token", NAMESPACE),
        ("{root}/attempts/other", NAMESPACE),
        ("{root}/unit/token", NAMESPACE),
        ("{root}/../x/attempts/token", NAMESPACE),
        ("{root}/unit/attempts/token", "cgroup:[2]"),
        ("", NAMESPACE),
    ],
)
def test_a_path_that_may_be_something_else_is_not_known(hierarchy: Hierarchy, path: str, namespace: str) -> None:
    here = Cgroups(mount=hierarchy.root, namespace=NAMESPACE)
    assert here.knows(f"{hierarchy.root}/unit/attempts/token", NAMESPACE, "token")
    assert not here.knows(path.format(root=hierarchy.root), namespace, "token")


def test_a_cgroup_is_made_once_and_locked(hierarchy: Hierarchy) -> None:
    path = f"{hierarchy.root}/unit/attempts/token"
    os.makedirs(f"{hierarchy.root}/unit")
    fd = cgroups.make(path)
    assert fd is not None
    assert cgroups.make(path) is None
    other = os.open(path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(fd)
    os.close(other)


def test_mounts_and_own_path_are_read_from_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/self/mountinfo": (
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
            "41 31 0:38 /outer /sys/fs/cg\\040roup/unified rw,relatime shared:9 - cgroup2 none rw\n"
        ),
        "/proc/self/cgroup": "4:memory:/x\n0::/outer/system.slice/toband.service\n",
    }
    monkeypatch.setattr(cgroups, "_read", texts.__getitem__)
    found = cgroups._mount()

    assert found == ("/sys/fs/cg roup/unified", "/outer")
    assert cgroups._own(*found) == "/sys/fs/cg roup/unified/system.slice/toband.service"
    for outside in ("0::/../other\n", "0::/elsewhere\n", "4:memory:/x\n"):
        texts["/proc/self/cgroup"] = outside
        assert cgroups._own(*found) is None
