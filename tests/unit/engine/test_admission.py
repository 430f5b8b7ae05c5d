"""When new work is refused because of the disk, and when it is taken in again."""

from __future__ import annotations

import pytest

from doubles.clock import Clock
from doubles.host import MIB, FakeDisk
from toband.engine.errors import DiskFullError, RefusedError
from toband.engine.health.admission import Admission, Always, inode_reserve_of, reserve_of, shortage
from toband.engine.health.health_conditions import Health
from toband.ports import HealthStatus, Space

GIB = 1024 * MIB


def space(total: int, free: int, inodes: int | None = None, free_inodes: int | None = None) -> Space:
    return Space(path="/s", total=total, free=free, inodes=inodes, free_inodes=free_inodes)


def test_the_reserve_is_the_smaller_of_512_mib_and_a_twentieth() -> None:
    assert reserve_of(space(64 * MIB, 0), None) == int(3.2 * MIB)
    assert reserve_of(space(10 * GIB, 0), None) == 512 * MIB
    assert reserve_of(space(10 * GIB, 0), 7 * MIB) == 7 * MIB
    assert reserve_of(space(10 * GIB, 0), 0) == 0


def test_inodes_have_a_reserve_where_they_are_counted() -> None:
    assert inode_reserve_of(space(GIB, 0, 100, 50), None) == 5
    assert inode_reserve_of(space(GIB, 0, 10_000_000, 50), None) == 1000
    assert inode_reserve_of(space(GIB, 0, None, None), None) == 0
    assert inode_reserve_of(space(GIB, 0, 100, 50), 0) == 0


@pytest.mark.parametrize(
    ("free", "refusing", "missing", "short"),
    [
        (50, False, 0, False),
        (49, False, 0, True),
        (50, True, 0, True),
        (54, True, 0, True),
        (55, True, 0, False),
        (65, True, 16, True),
        (66, True, 16, False),
        (0, False, 0, True),
    ],
)
def test_once_refused_more_must_be_free(free: int, refusing: bool, missing: int, short: bool) -> None:
    spaces = [space(1000 * MIB, free * MIB)]
    found = shortage(spaces, None, refusing=refusing, missing=missing * MIB)
    assert (found is not None) is short
    if found is not None:
        assert (found.path, found.free, found.reserve) == ("/s", free * MIB, 50 * MIB)


def test_every_file_system_counts_and_inodes_too() -> None:
    roomy, full = space(GIB, GIB), Space(path="/db", total=GIB, free=MIB)
    found = shortage([roomy, full], None, refusing=False)
    assert found is not None
    assert found.path == "/db"
    found = shortage([space(GIB, GIB, 100, 4)], None, refusing=False)
    assert found is not None
    assert found.inodes
    assert found.detail == ("the file system of /s has 4 free inodes, the reserve is 5; remove some files there")
    assert shortage([space(GIB, GIB, 100, 5)], None, refusing=False) is None


def test_without_a_reserve_nothing_is_refused() -> None:
    assert shortage([space(GIB, 0, 100, 0)], 0, refusing=False) is None


def test_who_comes_is_refused_with_what_is_full_and_taken_in_when_it_is_not() -> None:
    disk, health = FakeDisk(), Health(Clock())
    admission = Admission(disk, health, None)
    admission.check("start a run")
    disk.free = 10 * MIB
    with pytest.raises(DiskFullError) as refused:
        admission.check("start a run")
    assert str(refused.value) == (
        "cannot start a run: the file system of /state has 10 MiB free, the reserve is 50 MiB; free some space there"
    )
    assert (refused.value.path, refused.value.free) == ("/state", 10 * MIB)
    (condition,) = health.conditions
    assert (condition.name, condition.status) == ("disk", HealthStatus.REFUSING)
    disk.free = 60 * MIB
    with pytest.raises(DiskFullError):
        admission.check("start a run")  # there is no room for the ballast yet
    disk.free = 70 * MIB
    admission.check("start a run")
    assert health.conditions == ()


def test_a_write_that_found_no_space_counts_whatever_the_file_system_says() -> None:
    admission = Admission(FakeDisk(), Health(Clock()), 0)
    admission.writing_found_no_space("/state")
    with pytest.raises(DiskFullError, match="perhaps because of a quota"):
        admission.check("start a run")
    assert not admission.room_for_ballast()
    admission.writing_found_no_space(None)
    admission.check("start a run")


def test_other_troubles_refuse_too_but_for_the_database_which_answers_for_itself() -> None:
    health = Health(Clock())
    admission = Admission(FakeDisk(), health, None)
    health.trouble("spawner", HealthStatus.DEGRADED, "slow")
    health.trouble("database", HealthStatus.REFUSING, "locked")
    admission.check("start a run")
    health.trouble("state_dir", HealthStatus.REFUSING, "cannot write to /state: read-only")
    with pytest.raises(RefusedError, match="cannot create a workflow: cannot write to /state") as no:
        admission.check("create a workflow")
    assert no.value.condition == "state_dir"
    assert not isinstance(no.value, DiskFullError)


def test_a_disk_that_does_not_say_how_full_it_is_refuses_nobody() -> None:
    class Silent(FakeDisk):
        def spaces(self) -> list[Space]:
            raise OSError(5, "Input/output error")

    Admission(Silent(), Health(Clock()), None).check("start a run")
    Always().check("start a run")
