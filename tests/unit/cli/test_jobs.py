from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import run_pb2

from .conftest import Cli


@pytest.fixture
def upload(daemon: FakeDaemon) -> FakeDaemon:
    daemon.add_job("upload", base_dir="/srv/flows").used_by.extend(["nightly", "weekly"])
    daemon.add_job("tidy")
    for job in daemon.jobs.values():
        job.updated_at.FromJsonString("2026-02-01T00:15:30Z")
    return daemon


def test_list(cli: Cli, upload: FakeDaemon) -> None:
    assert cli("jobs", "list").out.splitlines() == [
        "JOB     TITLE            ENABLED  VERSION  OWNER  UPDATED (JST)",
        "tidy    Title of tidy    yes      1        api    2026-02-01 09:15:30",
        "upload  Title of upload  yes      1        api    2026-02-01 09:15:30",
    ]
    assert cli("jobs", "list", "-o", "name").out == "tidy\nupload\n"
    assert [job["name"] for job in cli("jobs", "list", "-o", "json").data] == ["tidy", "upload"]


def test_no_jobs(cli: Cli) -> None:
    assert "toban apply" in cli("jobs", "list").err
    wrong = cli("jobs", "list", "-l", "team")
    assert wrong.code == 2
    assert wrong.err.startswith("toban: cannot list jobs: the label")


def test_show(cli: Cli, upload: FakeDaemon) -> None:
    result = cli("jobs", "show", "upload")
    assert "used by:        nightly, weekly" in result.out.splitlines()
    assert result.out.endswith("jobs:\n  upload:\n    run: echo hello\n")
    assert cli("jobs", "show", "upload", "--source").out.startswith("jobs:\n")
    assert cli("jobs", "show", "upload", "-o", "json").data["used_by"] == ["nightly", "weekly"]


def test_a_job_that_is_not_there(cli: Cli, upload: FakeDaemon) -> None:
    result = cli("jobs", "show", "uplaod")
    assert result.code == 5
    assert result.err.splitlines() == [
        "toban: cannot show job uplaod: no job 'uplaod'",
        "hint: did you mean upload?",
    ]


def test_run(cli: Cli, upload: FakeDaemon) -> None:
    result = cli("jobs", "run", "tidy")
    (record,) = upload.runs.values()
    assert result.out == f"started tidy#1 ({record.run.id})\n"
    assert record.run.triggered_by == run_pb2.TRIGGER_MANUAL


def test_run_and_follow(cli: Cli, upload: FakeDaemon) -> None:
    def work() -> None:
        (record,) = upload.runs.values()
        upload.write(record, "tidy", b"swept\n")
        upload.finish(record, run_pb2.RUN_STATE_FAILED, "step tidy: exit code 1")

    upload.on_call["StreamLogs"] = work
    result = cli("jobs", "run", "tidy", "--follow")
    assert result.code == 1
    first, last = result.out.splitlines()
    assert first == "tidy | swept"
    assert last.startswith("tidy#1 failed after ")


def test_delete(cli: Cli, upload: FakeDaemon) -> None:
    assert cli("jobs", "delete", "tidy").out == "deleted tidy\n"
    refused = cli("jobs", "delete", "upload")
    assert refused.code == 6
    first, second = refused.err.splitlines()
    assert first.startswith("toban: cannot delete job upload: ")
    assert first.endswith("used by nightly, weekly")
    assert second.startswith("hint: change or delete those workflows first")
    assert set(upload.jobs) == {"upload"}


def test_enable_and_disable(cli: Cli, upload: FakeDaemon) -> None:
    assert cli("jobs", "disable", "tidy", "upload").out == "disabled tidy\ndisabled upload\n"
    assert not upload.jobs["upload"].enabled
    assert cli("jobs", "enable", "upload").out == "enabled upload\n"
    assert cli("jobs", "enable", "tidy", "-o", "name").out == "tidy\n"
    assert cli("jobs", "disable", "tidy", "-o", "json").data[0]["enabled"] is False
    assert upload.jobs["upload"].enabled
    missing = cli("jobs", "disable", "tydi")
    assert (missing.code, missing.out) == (5, "")
    assert "cannot disable job tydi" in missing.err


def test_versions(cli: Cli, upload: FakeDaemon) -> None:
    upload.add_job("tidy", "jobs:\n  tidy:\n    run: echo other\n")
    assert cli("jobs", "versions", "tidy", "-o", "name").out == "2\n1\n"
    assert "-    run: echo hello" in cli("jobs", "diff", "tidy").out.splitlines()
    restored = cli("jobs", "restore", "tidy", "1")
    assert restored.out == "tidy restored: version 3 has the text of version 1\n"
    assert upload.jobs["tidy"].definition.source.endswith("echo hello\n")
    assert cli("jobs", "show", "tidy", "--version", "2", "--source").out.endswith("other\n")
