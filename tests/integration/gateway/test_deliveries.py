"""Deliveries of other systems to `/hooks/NAME`."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256

from helpers.daemon import Daemon
from helpers.gateway import HttpClient

SOURCE = """
name: deploy
description: Started by a hook.
params:
  ref: {type: string, default: none}
steps:
  - id: only
    run: echo "ref=$ref"
    env: {ref: "{{ params.ref }}"}
"""


def signed(secret: str, body: bytes, delivery: str = "d1") -> dict[str, str]:
    return {
        "X_Hub_Signature_256": f"sha256={hmac.new(secret.encode(), body, sha256).hexdigest()}",
        "X_GitHub_Delivery": delivery,
        "X_GitHub_Event": "push",
        "Content_Type": "application/json",
    }


def test_a_signed_delivery_starts_one_run_whoever_sends_it(
    daemon: Daemon, anonymous: HttpClient, editor: HttpClient
) -> None:
    editor.post("/api/workflows", SOURCE)
    made = editor.post("/api/hooks", {"name": "deploy", "workflow": "deploy", "params": {"ref": "body.ref"}})
    assert (made.status, made.data["workflow"], made.data["form"]) == (201, "deploy", "github")
    secret = made.data["secret_value"]
    assert [each["name"] for each in editor.get("/api/hooks").data["hooks"]] == ["deploy"]

    body = json.dumps({"ref": "refs/heads/主"}).encode()
    first = anonymous.post("/hooks/deploy", body, **signed(secret, body))
    assert (first.status, first.data["created"]) == (201, True)
    run = daemon.wait_run(first.data["run_id"])
    assert (run.params["ref"], run.caller) == ("refs/heads/主", "hook:deploy")
    again = anonymous.post("/hooks/deploy", body, **signed(secret, body))
    assert (again.status, again.data["event_id"], again.data["created"]) == (200, first.data["event_id"], False)
    assert len(editor.get("/api/workflow_runs?workflow=deploy").data["runs"]) == 1

    for refused in (
        anonymous.post("/hooks/deploy", body + b" ", **signed(secret, body, "d2")),
        anonymous.post("/hooks/other", body, **signed(secret, body, "d3")),
        # A token is no signature.
        editor.post("/hooks/deploy", body, Content_Type="application/json"),
    ):
        assert (refused.status, refused.reason) == (401, "CREDENTIAL_INVALID")
    assert anonymous.post("/hooks/deploy", b" " * (1 << 20) + b"  ").status == 413
    assert anonymous.get("/hooks/deploy").status == 405
    assert editor.send("DELETE", "/api/hooks/deploy").status == 204
    assert anonymous.post("/hooks/deploy", body, **signed(secret, body, "d4")).status == 401
