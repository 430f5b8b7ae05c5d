"""How a step's limits are enforced on each kind of machine: by a cgroup, by the process itself, or not at all."""

from __future__ import annotations

import pytest

from toban.definition import Resources
from toband.supervise.launch.step_limits import Capabilities, LimitError, Limits, plan

MIB = 1024 * 1024
ALL = frozenset({"memory", "cpu", "pids"})
ROOT = Capabilities(root=True, names=frozenset({"0", "root"}), nicest=-20, no_cgroup="it is off")
USER = Capabilities(no_users="it lacks CAP_SETUID", names=frozenset({"1000", "ada"}), nicest=0, no_cgroup="it is off")
ROOT_WITH = Capabilities(root=True, names=frozenset({"0", "root"}), nicest=-20, controllers=ALL)
USER_WITH = Capabilities(no_users="it lacks CAP_SETUID", names=frozenset({"1000", "ada"}), nicest=0, controllers=ALL)


@pytest.mark.parametrize("can", [ROOT, USER, ROOT_WITH, USER_WITH])
def test_nothing_is_done_for_a_step_without_wishes(can: Capabilities) -> None:
    assert plan(can, None, "") is None
    assert plan(can, Resources(), "") is None
    assert all(plan(can, None, name) is None for name in can.names)


@pytest.mark.parametrize("can", [ROOT_WITH, USER_WITH])
def test_controllers_keep_all_limits(can: Capabilities) -> None:
    found = plan(can, Resources(memory=64 * MIB, cpu=1.5, pids=10), "")

    assert found is not None
    assert found.cgroup == {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "pids.max": "10",
    }
    assert (found.data, found.memory, found.processes) == (None, None, None)
    # Its supervisor would be one of the processes if it started the step from inside of the cgroup.
    assert found.in_child
    assert found.words == {"memory": "64MiB", "cpu": "1.5", "pids": "10"}


def test_what_only_the_cgroup_keeps_takes_no_fork() -> None:
    found = plan(USER_WITH, Resources(memory=64 * MIB, cpu=2), "")
    assert found is not None
    assert not found.in_child
    assert "in_child" not in found.message()


def test_a_sliver_of_a_core_is_as_little_as_the_kernel_takes() -> None:
    found = plan(ROOT_WITH, Resources(cpu=0.001), "")
    assert found is not None
    assert found.cgroup["cpu.max"] == "1000 100000"


@pytest.mark.parametrize("can", [ROOT, USER])
def test_memory_is_limited_per_process_and_watched_without_a_controller(can: Capabilities) -> None:
    found = plan(can, Resources(memory=64 * MIB), "")

    assert found is not None
    assert (found.data, found.memory, found.cgroup) == (64 * MIB, 64 * MIB, {})
    assert found.in_child


@pytest.mark.parametrize("can", [ROOT, USER])
def test_cpu_is_refused_without_a_controller(can: Capabilities) -> None:
    with pytest.raises(LimitError, match=r"cannot keep resources\.cpu: .* and it is off"):
        plan(can, Resources(cpu=1.0), "")


def test_processes_are_limited_by_user_without_a_controller() -> None:
    found = plan(USER, Resources(pids=10), "")
    assert found is not None
    assert (found.processes, found.in_child) == (10, True)
    other = plan(ROOT, Resources(pids=10), "nobody")
    assert other is not None
    assert (other.processes, other.user) == (10, "nobody")


@pytest.mark.parametrize("user", ["", "root", "0"])
def test_roots_processes_cannot_be_limited_without_a_controller(user: str) -> None:
    with pytest.raises(LimitError, match="only users other than root"):
        plan(ROOT, Resources(pids=10), user)


def test_niceness_is_refused_where_it_takes_a_right() -> None:
    found = plan(USER, Resources(nice=5), "")
    assert found is not None
    assert (found.nice, found.in_child) == (5, True)
    with pytest.raises(LimitError, match="niceness -5: this daemon may give 0 and more"):
        plan(USER, Resources(nice=-5), "")
    assert plan(ROOT, Resources(nice=-5), "") is not None
    zero = plan(USER, Resources(nice=0), "")
    assert zero is not None
    assert zero.message()["nice"] == 0


def test_only_root_takes_on_another_user() -> None:
    with pytest.raises(LimitError, match="cannot run it as bob: the daemon is ada, and it lacks CAP_SETUID"):
        plan(USER, None, "bob")
    found = plan(ROOT, None, "bob")
    assert found == Limits(user="bob")
    assert found is not None
    assert found.message() == {"user": "bob", "in_child": True}
