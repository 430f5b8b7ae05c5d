"""Streams of the gateway over a restart of the daemon behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from helpers.callers import Caller
from helpers.daemon import running_daemon
from helpers.gateway import SentEvent, running_gateway
from helpers.wait import wait_until
from toban.v1 import access_pb2, access_rule_pb2


def source(gate: Path) -> str:
    return f"""
name: long
description: Waits for a file.
steps:
  - id: wait
    run: |
      echo first
      until [ -e {gate} ]; do sleep 0.02; done
      echo second
"""


def until(events: Iterator[SentEvent], message: str) -> list[str]:
    found = []
    for each in events:
        found.append(each.data.get("message", ""))
        if found[-1] == message:
            break
    return found


def test_a_log_and_the_changes_go_on_over_a_restart(tmp_path: Path) -> None:
    gate = tmp_path / "go"
    with running_daemon(tmp_path / "s") as daemon, running_gateway(daemon.socket, "--api-only") as gateway:
        request = access_pb2.CreateTokenRequest(name="v", role=access_rule_pb2.ROLE_VIEWER)
        client = gateway.client(Caller(daemon.channel).access.CreateToken(request, timeout=60).text)
        daemon.apply(source(gate))
        run = daemon.start_run("long")
        log = client.events(f"/api/workflow_runs/{run}/logs")
        changes = client.events("/api/stream?workflow=long")
        assert until(log, "first") == ["first"]
        assert next(changes).name == "position"

        daemon.stop()
        away = client.get("/api/workflows")
        assert (away.status, away.reason, away.headers["retry-after"]) == (503, "DAEMON_UNREACHABLE", "1")
        daemon.start()
        # The gateway tries again within a second, as its answer says.
        wait_until(lambda: client.get("/api/workflows").status == 200, "the daemon is not found again", 30)
        gate.touch()

        states: list[str] = []

        def watch() -> None:
            for each in changes:
                if each.name == "run":
                    states.append(each.data["run"]["state"])
                    if states[-1] == "succeeded":
                        break

        watching = threading.Thread(target=watch)
        watching.start()
        rest = list(log)
        assert [each.data.get("message") for each in rest] == ["second", None]
        assert (rest[-1].name, rest[-1].data["db_status"]) == ("complete", "completed")
        watching.join(60)
        assert states[-1] == "succeeded"
