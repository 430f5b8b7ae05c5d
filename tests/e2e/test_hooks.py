"""Hooks through a real daemon: signed deliveries start runs and emit events, once each, and nothing else does."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.command import Toban
from helpers.daemon import Daemon, running_daemon
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import access_pb2, access_pb2_grpc, event_pb2, hook_pb2, hook_pb2_grpc, run_pb2

WORKFLOW = """
name: deploy
description: d
params:
  ref: {type: string, default: none}
  count: {type: integer, default: 0}
  password: {type: string, secret: true, required: false}
steps:
- {name: says, run: "echo {{ params.ref }} {{ params.count }} {{ event.payload.hook }}"}
"""
BODY = {"ref": "refs/heads/main", "commits": [{"id": "c0ffee"}], "size": 3, "head": {"message": "日本語"}}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("h")
    config = base / "toband.toml"
    closed = f'{{address = "unix://{base}/none.sock", role = "none"}}'
    config.write_text(f'listen = ["unix://{base}/s/toban.sock", {closed}]\n[limits]\nfailed_logins = 3\n')
    with running_daemon(base / "s", "--config", str(config)) as running:
        running.apply(WORKFLOW)
        yield running


@pytest.fixture
def toban(daemon: Daemon) -> Toban:
    return Toban(daemon)


def stub(channel: grpc.Channel) -> hook_pb2_grpc.HookServiceStub:
    return hook_pb2_grpc.HookServiceStub(channel)


def created(daemon: Daemon, name: str, **fields: Any) -> str:
    """The secret of a new hook."""
    request = hook_pb2.CreateHookRequest(name=name, **fields)
    return stub(daemon.channel).CreateHook(request, timeout=20).secret_value


def signature(secret: str, signed: bytes) -> str:
    return f"sha256={hmac.new(secret.encode(), signed, sha256).hexdigest()}"


def github(secret: str, body: bytes, delivery: str, event: str = "push") -> dict[str, str]:
    return {
        "X-Hub-Signature-256": signature(secret, body),
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": event,
        "Content-Type": "application/json",
        "Cookie": "session=not for events",
    }


def plain(secret: str, body: bytes, *, delivery: str = "", at: float | None = None) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    begin = f"{delivery}.{timestamp}." if delivery else f"{timestamp}."
    headers = {"X-Toban-Timestamp": timestamp, "X-Toban-Signature": signature(secret, begin.encode() + body)}
    return headers | ({"X-Toban-Delivery": delivery} if delivery else {})


def deliver(
    channel: grpc.Channel, name: str, headers: Mapping[str, str], body: bytes, **fields: str
) -> hook_pb2.DeliverHookResponse:
    request = hook_pb2.DeliverHookRequest(name=name, headers=headers, body=body, **fields)
    return stub(channel).DeliverHook(request, timeout=30)


def encoded(body: object = BODY) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def event_of(daemon: Daemon, event_id: str) -> event_pb2.Event:
    return daemon.events.GetEvent(event_pb2.GetEventRequest(id=event_id), timeout=20).event


def audited(daemon: Daemon) -> list[access_pb2.AuditEntry]:
    access = access_pb2_grpc.AccessServiceStub(daemon.channel)
    request = access_pb2.ListAuditEntriesRequest(method="DeliverHook", page_size=1000)
    return list(access.ListAuditEntries(request, timeout=20).entries)


def test_a_delivery_starts_one_run_with_its_parameters(daemon: Daemon) -> None:
    params = {"ref": "body.ref", "count": "body.size"}
    secret = created(daemon, "push", workflow="deploy", params=params, conditions=["body.ref=refs/heads/main"])
    body = encoded()
    headers = github(secret, body, "11111111-aaaa")
    # An address that needs a credential takes a signed delivery without one.
    with grpc.insecure_channel(f"unix:{daemon.state_dir.parent}/none.sock") as closed:
        first = deliver(closed, "push", headers, body)
        assert (first.created, first.ignored, first.not_started) == (True, "", "")
        with ThreadPoolExecutor(8) as pool:
            again = list(pool.map(lambda _: deliver(closed, "push", headers, body), range(20)))
    assert {(each.event_id, each.created, each.run_id) for each in again} == {(first.event_id, False, first.run_id)}
    run, params_of_run = daemon.wait_run(first.run_id), {"ref": "refs/heads/main", "count": 3.0}
    assert (run.caller, dict(run.params)) == ("hook:push", {**params_of_run, "password": None})
    assert run.triggered_by == run_pb2.TRIGGER_EVENT
    assert daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT] == b"refs/heads/main 3 push\n"
    event = event_of(daemon, first.event_id)
    payload = json.loads(event.payload_json)
    assert (event.type, event.caller, event.dedupe_key) == ("HOOK_DELIVERED", "hook:push", "hook:push:11111111-aaaa")
    assert payload["body"] == BODY
    assert payload["headers"] == {
        "content-type": "application/json",
        "x-github-delivery": "11111111-aaaa",
        "x-github-event": "push",
    }
    entries = audited(daemon)
    assert {(each.actor, each.target) for each in entries[-21:]} == {("hook:push", "push")}
    # Another branch, and the ping of a new hook, start nothing.
    other = encoded({"ref": "refs/heads/other"})
    assert "its condition is not true" in deliver(daemon.channel, "push", github(secret, other, "id-2"), other).ignored
    assert deliver(daemon.channel, "push", github(secret, other, "id-3", "ping"), other).ignored == "it is a ping"


def test_a_delivery_survives_the_daemon(daemon: Daemon) -> None:
    secret = created(daemon, "kept", workflow="deploy")
    body = encoded()
    first = deliver(daemon.channel, "kept", github(secret, body, "kept-1"), body)
    daemon.wait_run(first.run_id)
    daemon.kill()
    daemon.start()
    again = deliver(daemon.channel, "kept", github(secret, body, "kept-1"), body)
    assert (again.event_id, again.created, again.run_id) == (first.event_id, False, first.run_id)
    assert stub(daemon.channel).GetHook(hook_pb2.GetHookRequest(name="kept"), timeout=20).hook.workflow == "deploy"
    assert secret.encode() not in b"".join(path.read_bytes() for path in daemon.state_dir.glob("*.db*"))


def test_a_time_limits_repetitions_of_the_plain_form(daemon: Daemon) -> None:
    secret = created(
        daemon, "shop", event_type="ORDER_PAID", form=hook_pb2.HOOK_FORM_HMAC, params={"order": "body.order.id"}
    )
    body = encoded({"order": {"id": 7}, "more": "x"})
    headers = plain(secret, body)
    first = deliver(daemon.channel, "shop", headers, body)
    assert (first.created, first.run_id) == (True, "")
    assert json.loads(event_of(daemon, first.event_id).payload_json) == {"order": 7}
    assert deliver(daemon.channel, "shop", headers, body).event_id == first.event_id
    now = time.time()
    assert deliver(daemon.channel, "shop", plain(secret, body, at=now - 280), body).created
    for at in (now - 320, now + 320):
        with pytest.raises(grpc.RpcError) as stale:
            deliver(daemon.channel, "shop", plain(secret, body, at=at), body)
        assert "CREDENTIAL_EXPIRED" in str(stale.value.trailing_metadata())
    # A delivery id is signed, and the same for a later try.
    tried = deliver(daemon.channel, "shop", plain(secret, body, delivery="o-1", at=now - 60), body)
    assert deliver(daemon.channel, "shop", plain(secret, body, delivery="o-1"), body).event_id == tried.event_id
    forged = {**plain(secret, body, delivery="o-2"), "X-Toban-Delivery": "o-3"}
    assert reason_of(lambda: deliver(daemon.channel, "shop", forged, body)) == "CREDENTIAL_INVALID"
    large = encoded({"order": {"id": 8}, "more": "x" * 100_000})
    assert deliver(daemon.channel, "shop", plain(secret, large), large).created


def reason_of(call: Any) -> str:
    return refused(call).reason


def test_whatever_is_wrong_gets_one_answer(daemon: Daemon) -> None:
    secret = created(daemon, "closed", workflow="deploy")
    body = encoded()
    right = github(secret, body, "d-1")
    wrong: list[tuple[str, dict[str, str], bytes]] = [
        ("absent", right, body),
        ("../closed", right, body),
        ("closed", {}, body),
        ("closed", right, body + b" "),
        ("closed", {**right, "X-Hub-Signature-256": signature("other", body)}, body),
        ("closed", {**right, "X-Hub-Signature-256": right["X-Hub-Signature-256"][:-1]}, body),
        ("closed", {"X-Hub-Signature-256": right["X-Hub-Signature-256"]}, body),
        ("closed", {**right, "X-GitHub-Delivery": "x" * 101}, body),
        ("closed", plain(secret, body), body),
    ]
    answers = {
        (found.code, found.reason, found.text)
        for found in (refused(partial(deliver, daemon.channel, *each)) for each in wrong)
    }
    assert answers == {(grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID", "the credential is not valid")}
    # From an address that is known, they become slower; what is signed is taken all the same.
    found = [
        reason_of(lambda: deliver(daemon.channel, "closed", {}, body, forwarded_for="192.0.2.7")) for _ in range(6)
    ]
    assert (found[0], found[-1]) == ("CREDENTIAL_INVALID", "TOO_MANY_FAILURES")
    assert deliver(daemon.channel, "closed", right, body, forwarded_for="192.0.2.7").created
    refusals: list[access_pb2.AuditEntry] = []

    def recorded() -> bool:
        refusals[:] = [each for each in audited(daemon) if each.reason == "CREDENTIAL_INVALID"]
        return bool(refusals)

    wait_until(recorded, "no refusal is recorded")
    assert {each.actor for each in refusals} == {"delivery"}
    assert refusals[-1].detail in ("no such hook", "wrong signature", "no signature, or no time")


def test_what_is_signed_and_cannot_be_an_event_is_explained(daemon: Daemon) -> None:
    secret = created(daemon, "events", event_type="SOMETHING")
    for number, (body, text) in enumerate(
        [
            (b"{", "invalid JSON"),
            (b"payload=%7B%7D", "application/json"),
            (b"\xff", "UTF-8"),
            (b"[" * 100_000, "nested too deeply"),
            (encoded({"x": "y" * 70_000}), "at most 65536 bytes"),
        ]
    ):
        found = refused(lambda: deliver(daemon.channel, "events", github(secret, body, f"e-{number}"), body))  # noqa: B023
        assert (found.code, [name for name, _ in found.violations]) == (grpc.StatusCode.INVALID_ARGUMENT, ["body"])
        assert text in found.text
    huge = b"x" * (2**20 + 1)
    assert "at most 1048576 bytes" in refused(lambda: deliver(daemon.channel, "events", {}, huge)).text
    many = {f"x-{number}": "y" for number in range(101)}
    assert "at most 100" in refused(lambda: deliver(daemon.channel, "events", many, b"")).text
    # The body of a hook with a workflow is left out of the event if it does not fit; its parameters are not.
    secret = created(daemon, "large", workflow="deploy", params={"ref": "body.ref"})
    body = encoded({"ref": "v1", "x": "y" * 70_000})
    made = deliver(daemon.channel, "large", github(secret, body, "l-1"), body)
    assert dict(daemon.wait_run(made.run_id).params)["ref"] == "v1"
    assert json.loads(event_of(daemon, made.event_id).payload_json) == {
        "hook": "large",
        "delivery": "l-1",
        "body_bytes": len(json.dumps(json.loads(body), separators=(",", ":"))),
    }
    # Parameters that the workflow refuses are no error of the sender: the event says what happened.
    secret = created(daemon, "typed", workflow="deploy", params={"count": "body.ref"})
    made = deliver(daemon.channel, "typed", github(secret, body, "t-1"), body)
    assert (made.created, made.run_id) == (True, "")
    assert "count" in made.not_started


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "a/b", "workflow": "deploy"}, "name"),
        ({"name": "x"}, "workflow"),
        ({"name": "x", "workflow": "deploy", "event_type": "A"}, "workflow"),
        ({"name": "x", "event_type": "RUN_FAILED "}, "event_type"),
        ({"name": "x", "workflow": "deploy", "params": {"absent": "body.x"}}, "params"),
        ({"name": "x", "workflow": "deploy", "params": {"password": "body.x"}}, "params.password"),
        ({"name": "x", "workflow": "deploy", "params": {"ref": "ref"}}, "params"),
        ({"name": "x", "workflow": "deploy", "params": {"ref": "body.a b"}}, "params"),
        ({"name": "x", "workflow": "deploy", "conditions": ["body.ref"]}, "conditions"),
        ({"name": "x", "workflow": "deploy", "form": 9}, "form"),
    ],
)
def test_a_hook_that_cannot_be_is_refused(daemon: Daemon, fields: dict[str, Any], field: str) -> None:
    found = refused(lambda: created(daemon, **fields))
    assert (found.code, [name for name, _ in found.violations]) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


def test_a_stored_secret_signs(daemon: Daemon, toban: Toban, tmp_path: Path) -> None:
    toban("secrets", "set", "github_secret", stdin="a stored secret\n")
    found = refused(lambda: created(daemon, "stored", workflow="deploy", secret="github_secret"))
    assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SECRET_NOT_GRANTED")
    toban("secrets", "grant", "github_secret", "deploy")
    said = toban("hooks", "create", "stored", "--workflow", "deploy", "--secret", "github_secret")
    assert said.out == "stored\n"
    body = encoded()
    headers = github("a stored secret", body, "s-1")
    assert deliver(daemon.channel, "stored", headers, body).created
    assert refused(lambda: created(daemon, "stored", workflow="deploy")).reason == "HOOK_EXISTS"
    # A secret that is gone is one that signs nothing, and the audit log says so.
    toban("secrets", "delete", "github_secret")
    assert reason_of(lambda: deliver(daemon.channel, "stored", github("a stored secret", body, "s-2"), body)) == (
        "CREDENTIAL_INVALID"
    )


def test_commands(toban: Toban, daemon: Daemon) -> None:
    said = toban("hooks", "create", "cli", "-w", "deploy", "-p", "ref=body.ref", "--if", "body.ref=v1")
    secret = said.out.strip()
    assert len(secret) == 64
    assert said.err == (
        "created hook cli, which starts deploy, for POST /hooks/cli of `toban web`; its secret is not shown again\n"
    )
    body = encoded({"ref": "v1"})
    assert deliver(daemon.channel, "cli", github(secret, body, "c-1"), body).created
    assert secret not in toban("hooks", "show", "cli").out + toban("hooks", "list", "-o", "json").out
    assert "cli" in toban("hooks", "list", "-o", "name").out.split()
    assert toban("hooks", "delete", "cli").out == "deleted cli\n"
    assert "there is no hook 'cli'" in toban("hooks", "show", "cli", code=5).err
    assert reason_of(lambda: deliver(daemon.channel, "cli", github(secret, body, "c-2"), body)) == "CREDENTIAL_INVALID"
