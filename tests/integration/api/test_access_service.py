"""Who calls: sockets with roles, tokens, and users that the system reports, on a real daemon."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.callers import Caller, calling, logged_in
from helpers.daemon import Daemon, running_daemon
from helpers.refusal import Refusal, refused
from helpers.wait import wait_until
from toban.token_text import new_token_text
from toban.v1 import access_pb2, access_rule_pb2, run_pb2, system_pb2

CONFIGURED = new_token_text()
INFO = system_pb2.GetInfoRequest()
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root takes on another user")


@pytest.fixture(scope="module")
def sockets() -> Iterator[Path]:
    """A directory that other users can enter."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TOBAN_TEST_WORK")) as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, sockets: Path) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("d")
    (base / "toband.toml").write_text(f"""
listen = [
  "unix://{base}/s/toban.sock",
  {{ address = "unix://{sockets}/editor.sock", role = "editor", mode = "0666" }},
  {{ address = "unix://{sockets}/closed.sock", role = "none" }},
]
[access.tokens.first]
role = "admin"
digest = "{CONFIGURED.digest}"
""")
    with running_daemon(base / "s", "--config", str(base / "toband.toml")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(daemon: Daemon) -> Caller:
    return Caller(daemon.channel)


@pytest.fixture
def at_closed(sockets: Path) -> str:
    """The address of a socket without a role."""
    return f"unix:{sockets}/closed.sock"


def created(admin: Caller, name: str, role: int, **fields: object) -> access_pb2.CreateTokenResponse:
    request = access_pb2.CreateTokenRequest(name=name, role=role, **fields)  # type: ignore[arg-type]
    return admin.access.CreateToken(request, timeout=20)


def refused_call(target: str, credential: str = "", origin: str = "") -> Refusal:
    with calling(target, credential, origin) as caller:
        return refused(caller.who)


def tokens(admin: Caller, **how: object) -> dict[str, access_pb2.Token]:
    answer = admin.access.ListTokens(access_pb2.ListTokensRequest(**how), timeout=20)  # type: ignore[arg-type]
    return {each.name: each for each in answer.tokens}


def test_a_socket_gives_its_role(daemon: Daemon, sockets: Path, admin: Caller, at_closed: str) -> None:
    assert (admin.who().name, admin.who().role) == ("socket:toban.sock", access_rule_pb2.ROLE_ADMIN)
    with calling(f"unix:{sockets}/editor.sock") as editor:
        assert editor.access.WhoAmI(access_pb2.WhoAmIRequest(), timeout=20).address == f"unix://{sockets}/editor.sock"
        assert editor.who().role == access_rule_pb2.ROLE_EDITOR
        assert editor.system.GetInfo(INFO, timeout=20).pid == daemon.pid
        refusal = refused(lambda: editor.system.GetConfig(system_pb2.GetConfigRequest(), timeout=20))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")
    refusal = refused_call(at_closed)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REQUIRED")
    doors = admin.access.GetAccess(access_pb2.GetAccessRequest(), timeout=20).doors
    assert [each.role for each in doors] == [access_rule_pb2.ROLE_ADMIN, access_rule_pb2.ROLE_EDITOR, 0]


def test_a_token_is_its_owner_until_it_is_revoked(admin: Caller, at_closed: str) -> None:
    made = created(admin, "ci", access_rule_pb2.ROLE_OPERATOR)
    assert made.text.startswith(f"toban_{made.token.id}_")
    with calling(at_closed, made.text) as caller:
        identity = caller.who()
        assert (identity.name, identity.role) == ("token:ci", access_rule_pb2.ROLE_OPERATOR)
        assert identity.kind == access_pb2.IDENTITY_KIND_TOKEN
    wait_until(lambda: tokens(admin)["ci"].HasField("last_used_at"), "the use is not noted")
    assert tokens(admin)["ci"].created_by == "socket:toban.sock"
    again = refused(lambda: created(admin, "ci", access_rule_pb2.ROLE_VIEWER))
    assert again.reason == "TOKEN_EXISTS"
    revoke = access_pb2.RevokeTokenRequest(token="ci")
    assert admin.access.RevokeToken(revoke, timeout=20).token.state == access_pb2.TOKEN_STATE_REVOKED
    refusal = refused_call(at_closed, made.text)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REVOKED")
    assert refused(lambda: admin.access.RevokeToken(revoke, timeout=20)).reason == "TOKEN_NOT_FOUND"
    assert "ci" not in tokens(admin)
    assert tokens(admin, include_ended=True)["ci"].revoked_by == "socket:toban.sock"
    created(admin, "ci", access_rule_pb2.ROLE_VIEWER)


def test_a_wrong_credential_never_falls_back_to_the_role_of_the_socket(daemon: Daemon, admin: Caller) -> None:
    made = created(admin, "half", access_rule_pb2.ROLE_ADMIN)
    secret = new_token_text().text.rpartition("_")[2][-43:].rjust(43, "x")
    texts = [
        new_token_text().text,
        f"toban_{made.token.id}_{secret}",
        made.text[:-1],
        "not-a-token",
        "a.b.c",
        "x" * 6000,
    ]
    refusals = [refused_call(f"unix:{daemon.state_dir}/toban.sock", text) for text in texts]
    # Outsiders learn nothing: not even whether the id of a token exists.
    assert {(each.text, each.reason) for each in refusals} == {("the credential is not valid", "CREDENTIAL_INVALID")}
    metadata = (("authorization", f"Basic {made.text}"),)
    refusal = refused(lambda: admin.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=metadata, timeout=20))
    assert refusal.reason == "CREDENTIAL_INVALID"


def test_a_token_of_the_configuration(admin: Caller, at_closed: str) -> None:
    with calling(at_closed, CONFIGURED.text) as caller:
        assert (caller.who().name, caller.who().role) == ("token:first", access_rule_pb2.ROLE_ADMIN)
    listed = tokens(admin)["first"]
    assert (listed.created_by, listed.id, listed.HasField("created_at")) == ("configuration", "", False)
    assert listed.HasField("last_used_at")
    revoke = access_pb2.RevokeTokenRequest(token="first")
    assert refused(lambda: admin.access.RevokeToken(revoke, timeout=20)).reason == "TOKEN_IN_CONFIGURATION"
    assert refused(lambda: created(admin, "first", access_rule_pb2.ROLE_VIEWER)).reason == "TOKEN_EXISTS"


def test_tokens_outlive_the_daemon_and_a_revoked_one_stays_so(daemon: Daemon, admin: Caller, at_closed: str) -> None:
    kept = created(admin, "kept", access_rule_pb2.ROLE_VIEWER)
    gone = created(admin, "gone", access_rule_pb2.ROLE_VIEWER)
    admin.access.RevokeToken(access_pb2.RevokeTokenRequest(token=gone.token.id), timeout=20)
    daemon.kill()
    daemon.start()
    with calling(at_closed, kept.text) as caller:
        assert caller.who().name == "token:kept"
    assert refused_call(at_closed, gone.text).reason == "CREDENTIAL_REVOKED"


@pytest.mark.parametrize(("ending", "reason"), [("revoked", "CREDENTIAL_REVOKED"), ("expired", "CREDENTIAL_EXPIRED")])
def test_the_end_of_a_token_ends_its_streams(daemon: Daemon, at_closed: str, ending: str, reason: str) -> None:
    admin = Caller(daemon.channel)
    expires = datetime.now(UTC) + timedelta(seconds=1.5 if ending == "expired" else 600)
    made = created(admin, f"stream-{ending}", access_rule_pb2.ROLE_VIEWER, expires_at=expires)
    with calling(at_closed, made.text) as caller, ThreadPoolExecutor(1) as pool:
        stream = caller.runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=60)
        assert next(iter(stream)).position
        others = Caller(daemon.channel).runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=60)
        assert next(iter(others)).position
        end = pool.submit(refused, lambda: stream)
        if ending == "revoked":
            admin.access.RevokeToken(access_pb2.RevokeTokenRequest(token=made.token.id), timeout=20)
        assert end.result(30).reason == reason
        assert others.is_active(), "the streams of others go on"
        others.cancel()
        assert refused(caller.who).reason == reason


@pytest.mark.parametrize("method", ["RunService/ListRuns", "RunService/WatchRuns"])
def test_a_request_after_the_end_of_its_token_is_refused(daemon: Daemon, at_closed: str, method: str) -> None:
    admin = Caller(daemon.channel)
    made = created(admin, f"late-{method[-1]}", access_rule_pb2.ROLE_VIEWER)
    revoked = threading.Event()

    def requests() -> Iterator[bytes]:
        assert revoked.wait(30)
        yield b""

    def used() -> bool:
        tokens = admin.access.ListTokens(access_pb2.ListTokensRequest(), timeout=20).tokens
        return any(each.id == made.token.id and each.HasField("last_used_at") for each in tokens)

    with calling(at_closed) as caller:
        call: Any = caller.channel.stream_stream(f"/toban.v1.{method}")
        answers = call(requests(), timeout=60, metadata=(("authorization", f"Bearer {made.text}"),))
        wait_until(used, "the token was accepted")
        admin.access.RevokeToken(access_pb2.RevokeTokenRequest(token=made.token.id), timeout=20)
        revoked.set()
        assert refused(lambda: answers).reason == "CREDENTIAL_REVOKED"


def opened(caller: Caller, **fields: object) -> access_pb2.CreateSessionResponse:
    return caller.access.CreateSession(access_pb2.CreateSessionRequest(**fields), timeout=20)  # type: ignore[arg-type]


def sessions(caller: Caller) -> list[str]:
    return [each.id for each in caller.access.ListSessions(access_pb2.ListSessionsRequest(), timeout=20).sessions]


def test_a_user_of_a_socket_gets_a_session_for_another_door(daemon: Daemon, at_closed: str) -> None:
    admin = Caller(daemon.channel)
    login = logged_in(daemon.state_dir / "toban.sock.login")
    with calling(f"unix:{daemon.state_dir}/toban.sock", login) as caller:
        me = caller.who()
        made = opened(caller, label="browser", role=access_rule_pb2.ROLE_OPERATOR, narrowing={"workflows": ["ci-*"]})
    with calling(at_closed, made.text) as session, ThreadPoolExecutor(1) as pool:
        identity = session.who()
        assert (identity.name, identity.kind, list(identity.aliases)) == (me.name, me.kind, list(me.aliases))
        assert (identity.role, list(identity.narrowing.workflows)) == (access_rule_pb2.ROLE_OPERATOR, ["ci-*"])
        assert (identity.session_id, identity.expires_at) == (made.session.id, made.session.expires_at)
        assert sessions(session) == [made.session.id]
        entries = admin.access.ListAuditEntries(access_pb2.ListAuditEntriesRequest(method="CreateSession"), timeout=20)
        entry = entries.entries[0]
        assert (entry.actor, entry.target) == (me.name, made.session.id)
        assert entry.detail.startswith(f"of {me.name}, role=operator, workflows=ci-*, label=browser, until 20")
        assert refused(lambda: opened(session)).reason == "SESSION_OF_SESSION"
        stream = session.runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=60)
        assert next(iter(stream)).position
        end = pool.submit(refused, lambda: stream)
        session.access.RevokeSession(access_pb2.RevokeSessionRequest(id=made.session.id), timeout=20)
        assert end.result(30).reason == "CREDENTIAL_REVOKED"
        assert refused(session.who).reason == "CREDENTIAL_REVOKED"


def test_a_session_is_less_than_its_owner_and_ends_with_it(daemon: Daemon, at_closed: str, sockets: Path) -> None:
    admin = Caller(daemon.channel)
    owner = created(admin, "owner", access_rule_pb2.ROLE_OPERATOR, narrowing={"workflows": ["ci-*"]})
    other = created(admin, "other-owner", access_rule_pb2.ROLE_EDITOR)
    with calling(at_closed, owner.text) as caller, calling(at_closed, other.text) as stranger:
        more = refused(lambda: opened(caller, role=access_rule_pb2.ROLE_EDITOR))
        assert (more.code, more.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")
        wider = refused(lambda: opened(caller, narrowing={"workflows": ["*"]}))
        assert (wider.code, wider.reason) == (grpc.StatusCode.PERMISSION_DENIED, "WORKFLOW_NOT_PERMITTED")
        for fields, field in (
            ({"label": "x" * 65}, "label"),
            ({"label": "a\x1b[2J"}, "label"),
            ({"role": 9}, "role"),
            ({"narrowing": {}}, "narrowing"),
            ({"expires_at": datetime.now(UTC) + timedelta(days=8)}, "expires_at"),
            ({"expires_at": datetime.now(UTC) - timedelta(seconds=1)}, "expires_at"),
        ):
            wrong = refused(lambda: opened(caller, **fields))  # noqa: B023
            assert [name for name, _ in wrong.violations] == [field]
        made = opened(caller)
        assert (made.session.role, list(made.session.narrowing.workflows)) == (owner.token.role, ["ci-*"])
        assert sessions(caller) == [made.session.id]
        assert sessions(stranger) == []
        assert made.session.id in sessions(admin)
        revoke = access_pb2.RevokeSessionRequest(id=made.session.id)
        foreign = refused(lambda: stranger.access.RevokeSession(revoke, timeout=20))
        assert (foreign.code, foreign.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    with calling(at_closed, made.text) as session, ThreadPoolExecutor(1) as pool:
        stream = session.runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=60)
        assert next(iter(stream)).position
        end = pool.submit(refused, lambda: stream)
        admin.access.RevokeToken(access_pb2.RevokeTokenRequest(token="owner"), timeout=20)
        assert end.result(30).reason == "CREDENTIAL_REVOKED"
        assert refused(session.who).reason == "CREDENTIAL_REVOKED"
    with calling(f"unix:{sockets}/editor.sock") as nameless:
        unknown = refused(lambda: opened(nameless))
        assert (unknown.code, unknown.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_OWNER_UNKNOWN")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "", "role": 1}, "name"),
        ({"name": "a b", "role": 1}, "name"),
        ({"name": "x"}, "role"),
        ({"name": "x", "role": 9}, "role"),
        ({"name": "x", "role": 1, "narrowing": {}}, "narrowing"),
        ({"name": "x", "role": 1, "narrowing": {"workflows": [""]}}, "narrowing.workflows"),
        ({"name": "x", "role": 1, "narrowing": {"workflows": ["w"] * 101}}, "narrowing"),
        ({"name": "x", "role": 1, "expires_at": {"seconds": 1_000_000_000}}, "expires_at"),
        ({"name": "x", "role": 1, "expires_at": {"seconds": -(10**12)}}, "expires_at"),
    ],
)
def test_wrong_requests(daemon: Daemon, fields: dict[str, object], field: str) -> None:
    request = access_pb2.CreateTokenRequest(**fields)  # type: ignore[arg-type]
    refusal = refused(lambda: Caller(daemon.channel).access.CreateToken(request, timeout=20))
    assert [name for name, _ in refusal.violations] == [field]


def test_tokens_are_listed_in_pages(daemon: Daemon) -> None:
    admin = Caller(daemon.channel)
    for number in range(3):
        created(admin, f"page-{number}", access_rule_pb2.ROLE_VIEWER)
    everything = list(tokens(admin))
    found: list[str] = []
    request = access_pb2.ListTokensRequest(page_size=2)
    while True:
        answer = admin.access.ListTokens(request, timeout=20)
        assert len(answer.tokens) <= 2
        found += [each.name for each in answer.tokens]
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert found == everything


def test_a_step_is_itself_until_its_attempt_ends(daemon: Daemon, sockets: Path, at_closed: str) -> None:
    files = daemon.state_dir.parent
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    say = f"echo $TOBAN_RUN_ID/$TOBAN_ATTEMPT_TOKEN > {files}/new && mv {files}/new {files}/origin"
    steps = [
        {"name": "first", "run": f"{say}; {wait.format(files / 'one')}"},
        {"name": "second", "depends_on": ["first"], "run": wait.format(files / "two")},
    ]
    daemon.apply(json.dumps({"name": "two-steps", "description": "x", "steps": steps}))
    run_id = daemon.start_run("two-steps")
    wait_until((files / "origin").exists, "the step does not begin")
    origin = (files / "origin").read_text().strip()
    login = logged_in(daemon.state_dir / "toban.sock.login")
    for target, credential in ((at_closed, ""), (f"unix:{daemon.state_dir}/toban.sock", login)):
        with calling(target, credential, origin) as caller:
            identity = caller.who()
            assert (identity.name, identity.role) == ("step:two-steps/first", access_rule_pb2.ROLE_UNSPECIFIED)
    with calling(at_closed, origin=origin) as caller, ThreadPoolExecutor(1) as pool:
        stream = caller.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=60)
        assert next(iter(stream)).run.id == run_id
        end = pool.submit(refused, lambda: stream)
        (files / "one").touch()
        assert end.result(30).reason == "STEP_ENDED"
        assert refused(caller.who).reason == "STEP_ENDED"
    (files / "two").touch()
    daemon.wait_run(run_id)
    assert refused_call(at_closed, origin=origin).reason == "STEP_ENDED"


def test_a_user_is_proved_by_the_credential_socket(daemon: Daemon, sockets: Path) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    token = logged_in(daemon.state_dir / "toban.sock.login")
    with calling(f"unix:{daemon.state_dir}/toban.sock", token) as caller:
        identity = caller.who()
    assert identity.name == f"uid:{os.geteuid()} ({me})"
    assert identity.kind == access_pb2.IDENTITY_KIND_USER
    assert identity.role == access_rule_pb2.ROLE_ADMIN
    assert set(identity.aliases) == {f"uid:{os.geteuid()}", me}
    refusal = refused_call(f"unix:{sockets}/editor.sock", token)
    assert refusal.reason == "CREDENTIAL_INVALID", "it is for its own socket only"


@as_root
def test_another_user_gets_the_role_of_the_socket_that_it_may_open(daemon: Daemon, sockets: Path) -> None:
    token = logged_in(sockets / "editor.sock.login", NOBODY)
    with calling(f"unix:{sockets}/editor.sock", token) as caller:
        identity = caller.who()
    assert identity.name.startswith(f"uid:{NOBODY}")
    assert identity.role == access_rule_pb2.ROLE_EDITOR
    with pytest.raises(Exception, match="returned non-zero"):
        logged_in(daemon.state_dir / "toban.sock.login", NOBODY)
    assert not (sockets / "closed.sock.login").exists(), "a socket without a role needs none"
