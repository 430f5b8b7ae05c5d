from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import run_pb2

from .conftest import Cli


def test_a_listing_for_people(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly").title = "夜間レポート"
    daemon.add_workflow("weekly").enabled = False
    for name in ("nightly", "weekly"):
        daemon.workflows[name].updated_at.FromJsonString("2026-02-01T00:15:30Z")
    result = cli("workflows", "list")
    assert result.code == 0
    assert result.err == ""
    assert result.out.splitlines() == [
        "NAME     TITLE            ENABLED  VERSION  OWNER  UPDATED (JST)",
        "nightly  夜間レポート     yes      1        api    2026-02-01 09:15:30",
        "weekly   Title of weekly  no       1        api    2026-02-01 09:15:30",
    ]


def test_what_is_wide_is_not_cut_when_nobody_looks(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly").title = "t" * 300
    assert "t" * 300 in cli("workflows", "list").out


def test_no_workflows(cli: Cli) -> None:
    result = cli("workflows", "list")
    assert (result.code, result.out) == (0, "")
    assert "toban apply" in result.err
    assert cli("workflows", "list", "-o", "json").data == []
    assert cli("-q", "workflows", "list").err == ""


def test_a_listing_for_programs(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly").updated_at.FromJsonString("2026-02-01T00:15:30.123456Z")
    after = cli("workflows", "list", "-o", "json")
    before = cli("-o", "json", "workflows", "list")
    assert after.data == before.data
    (workflow,) = after.data
    assert list(workflow)[:5] == ["name", "title", "description", "labels", "enabled"]
    assert workflow["description"] == ""
    assert workflow["updated_at"] == "2026-02-01T00:15:30.123456Z"
    assert cli("workflows", "list", "-o", "name").out == "nightly\n"
    assert cli("-o", "json", "workflows", "list", "-o", "yaml").out.startswith("- name: nightly\n")


def test_the_limit_says_when_there_is_more(cli: Cli, daemon: FakeDaemon) -> None:
    for number in range(5):
        daemon.add_workflow(f"w{number}")
    result = cli("workflows", "list", "--limit", "3", "-o", "name")
    assert result.out == "w0\nw1\nw2\n"
    assert result.err == "more available: use --limit 6\n"
    assert cli("workflows", "list", "--limit", "5").err == ""


def test_labels(cli: Cli, daemon: FakeDaemon) -> None:
    assert "no workflows with these labels" in cli("workflows", "list", "-l", "team=data").err
    result = cli("workflows", "list", "-l", "team")
    assert result.code == 2
    assert "KEY=VALUE" in result.err


def test_show(cli: Cli, daemon: FakeDaemon) -> None:
    source = "name: nightly  # 夜\r\nsteps:\n  one: {run: x}"
    daemon.add_workflow("nightly", source, base_dir="/srv/flows")
    daemon.workflows["nightly"].labels["team"] = "data"
    shown = cli("workflows", "show", "nightly")
    assert "labels:         team=data" in shown.out
    assert "base directory: /srv/flows" in shown.out
    assert shown.out.endswith(source.replace("\r\n", "\n"))
    assert cli("workflows", "show", "nightly", "--source").raw == source.encode()
    assert cli("workflows", "show", "nightly", "-o", "json").data["definition"]["source"] == source
    assert cli("workflows", "show", "nightly", "-o", "name").out == "nightly\n"


def test_versions(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly", "name: nightly # 1")
    daemon.add_workflow("nightly", "name: nightly # 2")
    listed = cli("workflows", "versions", "nightly")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["VERSION", "2", "1"]
    assert cli("workflows", "versions", "nightly", "-o", "name").out == "2\n1\n"
    old = cli("workflows", "show", "nightly", "--version", "1")
    assert "digest:" in old.out
    assert old.out.endswith("name: nightly # 1")
    source = cli("workflows", "show", "nightly", "--version", "1", "--source")
    assert source.out == "name: nightly # 1"
    missing = cli("workflows", "show", "nightly", "--version", "9")
    assert missing.code == 5
    assert "nightly has no version 9" in missing.err


def test_enable_and_disable(cli: Cli, daemon: FakeDaemon) -> None:
    for name in ("a", "b"):
        daemon.add_workflow(name)
    assert cli("workflows", "disable", "a", "b").out == "disabled a\ndisabled b\n"
    assert not daemon.workflows["b"].enabled
    assert cli("workflows", "enable", "b").out == "enabled b\n"
    assert cli("workflows", "enable", "a", "-o", "name").out == "a\n"
    assert cli("workflows", "disable", "a", "-o", "json").data[0]["enabled"] is False
    assert daemon.workflows["b"].enabled


def test_delete(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("a")
    record = daemon.add_run("a")
    refused = cli("workflows", "delete", "a")
    assert refused.code == 6
    assert refused.err.splitlines()[1] == "hint: --cancel cancels its runs first"
    result = cli("workflows", "delete", "a", "--cancel")
    assert (result.code, result.out) == (0, "deleted a\n")
    assert record.run.state == run_pb2.RUN_STATE_CANCELLED
    assert daemon.workflows == {}
    daemon.add_workflow("b")
    deleted = cli("workflows", "delete", "b", "-o", "json")
    assert deleted.data == [{"name": "b", "outcome": "deleted"}]


@pytest.mark.parametrize("form", ["json", "yaml", "name", "table"])
def test_system(cli: Cli, daemon: FakeDaemon, form: str) -> None:
    daemon.info.recovery.runs = 2
    daemon.info.recovery.lost = 1
    daemon.info.started_at.FromJsonString("2026-02-01T00:15:30Z")
    info, config = cli("system", "info", "-o", form), cli("system", "config", "-o", form)
    assert info.code == config.code == 0
    match form:
        case "json":
            assert info.data["version"] == "9.9.9"
            assert config.data[0] == {
                "key": "state_dir",
                "value_json": '"/var/lib/toban"',
                "source": "default",
                "place": "",
                "overridden": [],
                "live": False,
            }
        case "yaml":
            assert "version: 9.9.9\n" in info.out
            assert "- key: state_dir\n" in config.out
        case "name":
            assert info.out == f"{daemon.address}\n"
            assert config.out == "state_dir\nlisten\n"
        case _:
            assert "recovery:          2 unfinished runs; processes: 1 lost" in info.out
            assert "started:           2026-02-01 09:15:30 JST" in info.out
            assert config.out.splitlines()[1].split() == ["state_dir", "/var/lib/toban", "default", "restart"]
