"""Starting runs for due times of the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import workflow_pb2 as pb

from .conftest import Cli

INTERVAL = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-31T00:00Z")


def time(day: int, *, started: bool = True, run_id: str = "") -> pb.BackfilledTime:
    outcome = pb.BACKFILL_OUTCOME_STARTED if started else pb.BACKFILL_OUTCOME_HAS_RUN
    return pb.BackfilledTime(local=f"2026-01-{day:02} 03:00:00+00:00", timezone="UTC", outcome=outcome, run_id=run_id)


@pytest.fixture(autouse=True)
def nightly(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")


def test_what_would_start(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.backfilled += [time(1), time(2, started=False, run_id="r-2"), time(3)]
    result = cli("backfill", "nightly", *INTERVAL, "--dry-run", "--schedule", "0", "--scope", "quick", "-p", "n=3")
    assert result.out.splitlines() == [
        "DUE                        ZONE  SCHEDULE  STARTED    RUN",
        "2026-01-01 03:00:00+00:00  UTC   0         would be   -",
        "2026-01-02 03:00:00+00:00  UTC   0         has a run  r-2",
        "2026-01-03 03:00:00+00:00  UTC   0         would be   -",
    ]
    assert result.err == (
        "would start 2 runs of nightly; the first for 2026-01-01 03:00:00+00:00, the last for 2026-01-03 "
        "03:00:00+00:00; 1 due time has a run already; nothing was started\n"
    )
    (request,) = (each for each in daemon.seen if isinstance(each, pb.BackfillScheduleRequest))
    assert (request.validate_only, request.schedule_index, request.scope, request.limit) == (True, 0, "quick", 1000)
    assert request.params["n"] == "3"
    assert (request.from_time.ToDatetime(UTC), request.to_time.ToDatetime(UTC)) == (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 31, tzinfo=UTC),
    )


def test_what_was_started(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.backfilled += [time(day, run_id=f"r-{day}") for day in range(1, 32)]
    result = cli("backfill", "nightly", *INTERVAL, "--again", "--max", "31", "--request-id", "k")
    assert len(result.out.splitlines()) == 21
    assert (
        "11 due times in between not shown: -o json shows all\nstarted 31 runs of nightly; the first for" in result.err
    )
    assert cli("backfill", "nightly", *INTERVAL, "-o", "name").out.split() == [f"r-{day}" for day in range(1, 32)]
    request = daemon.seen[0]
    assert isinstance(request, pb.BackfillScheduleRequest)
    assert (request.again, request.limit, request.request_id) == (True, 31, "k")
    assert not request.HasField("schedule_index")
    assert len(cli("backfill", "nightly", *INTERVAL, "-o", "json").data) == 31


def test_a_date_is_the_whole_day(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.explanation.sentences.append("Runs every night.")
    result = cli("backfill", "nightly", "--from", "2026-01-01", "--to", "2026-01-31")
    assert result.err.splitlines() == [
        "nightly has no due time from 2026-01-01 00:00:00 JST to 2026-01-31 23:59:59 JST; nothing was started",
        "Runs every night.",
    ]
    request = daemon.seen[0]
    assert isinstance(request, pb.BackfillScheduleRequest)
    end = datetime(2026, 2, 1).astimezone() - timedelta(microseconds=1)
    assert request.from_time.ToDatetime(UTC) == datetime(2026, 1, 1).astimezone()
    assert request.to_time.ToDatetime(UTC) == end


def test_an_interval_that_ends_before_it_begins(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("backfill", "nightly", "--from", "2026-01-31", "--to", "2026-01-01")
    assert (result.code, result.err) == (2, "toban: cannot backfill nightly: --to must not be before --from\n")
    assert not daemon.seen
