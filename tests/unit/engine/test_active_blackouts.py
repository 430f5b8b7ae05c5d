from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from doubles.clock import Clock
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.engine.health.health_conditions import Health
from toband.engine.schedules.active_blackouts import ActiveBlackouts
from toband.ports import HealthStatus, StoredWorkflow

NOW = datetime(2026, 3, 2, 2, 30, tzinfo=UTC)


def workflow(*windows: str) -> StoredWorkflow:
    found: Any = SimpleNamespace(definition=SimpleNamespace(parsed={"blackout": windows}))
    return cast(StoredWorkflow, found)


def test_windows_of_the_workflow_and_of_the_daemon_that_touch_are_one() -> None:
    blackouts = ActiveBlackouts(["0 3 * * */1h"], "UTC")
    night = workflow("30 10 * * */90m", "0 11 * * */1h")
    told = NotStarted(NotStartedReason.BLACKOUT, "until 2026-03-02T13:00:00+09:00")
    assert blackouts.until(night, "Asia/Tokyo", NOW) == told
    assert blackouts.end(night, "Asia/Tokyo", NOW) == datetime(2026, 3, 2, 4, tzinfo=UTC)
    assert blackouts.until(None, "Asia/Tokyo", NOW) is None
    assert ActiveBlackouts((), "UTC").until(night, "UTC", NOW) is None


@pytest.mark.parametrize(
    ("windows", "told"),
    [
        ([], []),
        (["0 2 * * sun/2h"], []),
        (["0 2 * * sun/2h", "0 0 * * */24h"], ["blackout"]),
    ],
)
def test_a_blackout_of_the_daemon_that_never_ends_is_told(windows: list[str], told: list[str]) -> None:
    health = Health(Clock(NOW))
    ActiveBlackouts(windows, "UTC").tell(health)
    assert [each.name for each in health.conditions] == told
    for each in health.conditions:
        assert each.status is HealthStatus.DEGRADED
        assert '"0 0 * * */24h"' in each.detail
