"""Health conditions: their status, their start, and their observers."""

from __future__ import annotations

from datetime import UTC, datetime

from doubles.clock import Clock
from toband.engine.health.health_conditions import Health
from toband.ports import HealthStatus

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def test_all_is_well_at_first() -> None:
    health = Health(Clock(NOW, step=1))
    assert (health.status, health.conditions, health.refusing()) == (HealthStatus.OK, (), None)


def test_the_worst_comes_first_and_is_the_whole() -> None:
    health = Health(Clock(NOW, step=1))
    health.trouble("descriptors", HealthStatus.DEGRADED, "many")
    assert (health.status, health.refusing()) == (HealthStatus.DEGRADED, None)
    health.trouble("disk", HealthStatus.REFUSING, "full")
    assert health.status == HealthStatus.REFUSING
    assert [each.name for each in health.conditions] == ["disk", "descriptors"]
    refusing = health.refusing()
    assert refusing is not None
    assert refusing.detail == "full"


def test_since_is_when_it_became_so_bad_and_the_detail_is_the_latest() -> None:
    health = Health(Clock(NOW, step=1))
    health.trouble("disk", HealthStatus.REFUSING, "9 MiB free")
    (first,) = health.conditions
    health.trouble("disk", HealthStatus.REFUSING, "8 MiB free")
    (second,) = health.conditions
    assert (second.since, second.detail) == (first.since, "8 MiB free")
    health.trouble("disk", HealthStatus.DEGRADED, "better")
    (third,) = health.conditions
    assert third.since > first.since


def test_who_listens_is_told_of_changes_only() -> None:
    health = Health(Clock(NOW, step=1))
    told: list[HealthStatus] = []
    health.on_change(lambda: told.append(health.status))
    health.well("disk")
    health.trouble("disk", HealthStatus.REFUSING, "full")
    health.trouble("disk", HealthStatus.REFUSING, "fuller")
    health.well("disk")
    health.well("disk")
    assert told == [HealthStatus.REFUSING, HealthStatus.OK]
