from __future__ import annotations

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import system_pb2

from .conftest import Cli


def garbage(daemon: FakeDaemon) -> None:
    daemon.garbage.MergeFrom(
        system_pb2.CollectGarbageResponse(
            runs=[
                system_pb2.CollectedRun(
                    id=f"id-{number}",
                    workflow="nightly",
                    number=number,
                    bytes=2048,
                    reason="ended more than 90d ago",
                )
                for number in (7, 8)
            ],
            run_count=2,
            bytes=4096,
            strays=1,
            compressed_logs=12,
        )
    )
    for run in daemon.garbage.runs:
        run.finished_at.FromJsonString("2026-02-01T00:15:30Z")


def test_what_went_for_people(cli: Cli, daemon: FakeDaemon) -> None:
    garbage(daemon)
    result = cli("system", "gc")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "RUN        ENDED (JST)          SIZE   REASON                   ID",
        "nightly#7  2026-02-01 09:15:30  2 KiB  ended more than 90d ago  id-7",
        "nightly#8  2026-02-01 09:15:30  2 KiB  ended more than 90d ago  id-8",
        "removed 2 runs, 1 stray, 4 KiB; compressed 12 logs",
    ]
    assert len(daemon.collected) == 1


def test_a_dry_run_says_what_would_go(cli: Cli, daemon: FakeDaemon) -> None:
    garbage(daemon)
    daemon.garbage.run_count = 1500
    lines = cli("system", "gc", "--dry-run").out.splitlines()
    assert lines[-2] == "and 1498 more runs"
    assert lines[-1] == "would remove 1500 runs, 1 stray, 4 KiB; would compress 12 logs"
    assert daemon.collected == []


def test_nothing_to_do(cli: Cli) -> None:
    assert cli("system", "gc").out == "removed 0 runs, 0 strays, 0 B; compressed 0 logs\n"


def test_what_went_for_programs(cli: Cli, daemon: FakeDaemon) -> None:
    garbage(daemon)
    data = cli("system", "gc", "-o", "json").data
    assert list(data) == ["runs", "run_count", "bytes", "strays", "compressed_logs"]
    assert data["runs"][0] == {
        "id": "id-7",
        "workflow": "nightly",
        "number": 7,
        "finished_at": "2026-02-01T00:15:30Z",
        "bytes": 2048,
        "reason": "ended more than 90d ago",
    }
    assert cli("system", "gc", "-o", "name").out == "id-7\nid-8\n"
