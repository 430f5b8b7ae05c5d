from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from doubles.daemon.fake_errors import info
from toban.v1 import system_pb2

from .conftest import Cli

BROKEN = system_pb2.DefinitionFile(
    path="/etc/b.yaml",
    state=system_pb2.DEFINITION_FILE_STATE_BROKEN,
    problems=["/etc/b.yaml:1:1: name: what is this"],
)


def test_what_a_reload_changed(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("system", "reload").out == "configuration: 0 changes in effect\ndefinitions: 0 files read, 0 changes\n"
    daemon.reloaded = system_pb2.ReloadResponse(
        changes=[
            system_pb2.DefinitionChange(
                name="nightly", outcome=system_pb2.DEFINITION_OUTCOME_UPDATED, path="/etc/a.yaml"
            )
        ],
        change_count=3,
        files=2,
    )
    done = cli("system", "reload")
    assert done.code == 0
    assert done.out.splitlines() == [
        "configuration: 0 changes in effect",
        "nightly updated (/etc/a.yaml)",
        "and 2 more changes",
        "definitions: 2 files read, 3 changes",
    ]
    assert cli("system", "reload", "-o", "name").out == "nightly\n"
    assert cli("system", "reload", "-o", "json").data["files"] == 2
    daemon.reloaded.broken.append(BROKEN)
    done = cli("system", "reload")
    assert done.code == 7
    assert "2 files read, 1 broken" in done.out
    assert "name: what is this" in done.err


def test_what_a_reload_changed_of_the_configuration(cli: Cli, daemon: FakeDaemon) -> None:
    changed = system_pb2.ConfigChange(key="max_attempts_running", before_json="256", after_json="8")
    token = system_pb2.ConfigChange(key="access.tokens", before_json='["ci"]', after_json='["ci"]')
    listen = system_pb2.ConfigChange(key="timezone", before_json='"UTC"', after_json='"Asia/Tokyo"')
    daemon.reloaded_config = system_pb2.ReloadConfigResponse(
        applied=[changed, token], needs_restart=[listen], warnings=["TOBAN_X is not a setting"]
    )
    done = cli("system", "reload")
    assert done.code == 0
    assert done.out.splitlines()[:4] == [
        "max_attempts_running: 256 -> 8",
        "access.tokens: changed",
        'timezone: "UTC" -> "Asia/Tokyo", when the daemon starts again',
        "configuration: 2 changes in effect, 1 need a restart",
    ]
    assert "TOBAN_X is not a setting" in done.err
    found = cli("system", "reload", "-o", "json").data
    assert [each["key"] for each in found["configuration"]["needs_restart"]] == ["timezone"]
    daemon.reloaded_config = system_pb2.ReloadConfigResponse(problems=["/etc/toband.toml:3: unknown key `x`"])
    refused = cli("system", "reload")
    assert refused.code == 7
    assert "configuration: invalid, 1 problem" in refused.out
    assert "/etc/toband.toml:3: unknown key `x`" in refused.err


def test_broken_files_are_told_with_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    assert "definition files" not in cli("system", "info").out
    daemon.info.definition_files.append(BROKEN)
    daemon.info.definition_file_count = 5
    said = cli("system", "info").out
    assert "5, 1 broken" in said
    assert "name: what is this" in said


def test_warnings_of_files_are_told_with_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.info.definition_files.add(
        path="/etc/a.yaml",
        state=system_pb2.DEFINITION_FILE_STATE_OK,
        problems=[f"/etc/a.yaml:{line}:1: warning: blackout: no end" for line in range(1, 13)],
    )
    daemon.info.definition_files.append(BROKEN)
    daemon.info.definition_file_count = 2
    said = cli("system", "info").out
    assert "2, 1 broken, 1 with warnings" in said
    assert "/etc/a.yaml:10:1: blackout: no end" in said
    assert "/etc/a.yaml:11:1" not in said
    assert "2 more: see `toban system info -o json`" in said


SOURCE = "name: nightly\ndescription: x\nsteps: {one: {run: 'true'}}\n"


@pytest.mark.parametrize(
    ("rpc", "arguments"),
    [
        ("ApplyDefinitions", ["apply", "FILE"]),
        ("RestoreWorkflowVersion", ["workflows", "restore", "nightly", "1"]),
        ("DeleteWorkflow", ["workflows", "delete", "nightly"]),
    ],
)
def test_what_a_file_owns_is_changed_by_force_only(
    cli: Cli, daemon: FakeDaemon, tmp_path: Path, rpc: str, arguments: list[str]
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(SOURCE, encoding="utf-8")
    command = [str(file) if word == "FILE" else word for word in arguments]
    daemon.add_workflow("nightly", SOURCE + "title: old\n")
    text = "'nightly' is defined by the file /etc/a.yaml: change it there"
    details = (info("OWNED_BY_FILE", {"path": "/etc/a.yaml"}),)
    daemon.fail[rpc] = (grpc.StatusCode.FAILED_PRECONDITION, text, details)
    refused = cli(*command)
    assert refused.code == 6
    assert text in refused.err
    assert "--force" in refused.err
    del daemon.fail[rpc]
    assert cli(*command, "--force").code == 0
    sent = [request for request in daemon.seen if type(request).__name__ == f"{rpc}Request"]
    assert [getattr(request, "force", None) for request in sent] == [False, True]
