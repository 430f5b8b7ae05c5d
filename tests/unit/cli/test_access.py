"""whoami, access, tokens and audit against a daemon."""

from __future__ import annotations

import json
import os
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from doubles.daemon.fake_errors import info
from toban.certificate_authority import hosts_of
from toban.sdk import Conflict, SyncClient
from toban.token_text import read_token_text
from toban.v1 import access_pb2, access_rule_pb2

from .conftest import Cli


def test_who_is_calling(cli: Cli, daemon: FakeDaemon) -> None:
    identity = daemon.access.identity
    identity.aliases.extend(["aiko", "uid:1000"])
    identity.narrowing.workflows.append("nightly-*")
    identity.narrowing.labels["team"] = "data"
    identity.expires_at.FromJsonString("2099-01-01T00:00:00Z")
    result = cli("whoami")
    assert result.out.splitlines() == [
        "identity:    uid:1000 (aiko)",
        "proved by:   user",
        "role:        admin",
        "limited to:  nightly-* or label team=data",
        "also called: aiko, uid:1000",
        "expires:     2099-01-01 09:00:00 JST",
        f"daemon:      {daemon.address}",
    ]
    assert result.err == ""
    assert cli("whoami", "-o", "json").data["identity"]["kind"] == "user"
    assert cli("whoami", "-o", "name").out == "uid:1000 (aiko)\n"
    daemon.access.identity = access_pb2.Identity(name="socket:toban.sock", kind=access_pb2.IDENTITY_KIND_SOCKET)
    assert "you match no approver by name" in cli("whoami").err


def test_the_doors(cli: Cli, daemon: FakeDaemon) -> None:
    doors = daemon.access.doors
    doors.doors.add(address="unix:///run/toban/admin.sock", role=access_rule_pb2.ROLE_ADMIN)
    doors.doors.add(address="tls://0.0.0.0:7233")
    doors.daemon_user, doors.step_user = "toban", "toban-step"
    result = cli("access")
    assert result.out.splitlines() == [
        "ADDRESS                       ROLE WITHOUT A CREDENTIAL",
        "unix:///run/toban/admin.sock  admin",
        "tls://0.0.0.0:7233            none: a credential is required",
        "",
        "user of the daemon: toban",
        "user of steps:      toban-step",
    ]
    assert cli("access", "show", "-o", "name").out.splitlines() == [door.address for door in doors.doors]
    doors.steps_share_user = True
    shared = cli("access", "show")
    assert "Roles and secrets are no boundary against those who define workflows." in shared.out
    assert "hint: set `step_user`" in shared.err
    assert cli("access", "-o", "json").data["steps_share_user"] is True
    assert cli("access", "--help").out.startswith("Usage: toban access COMMAND")


def test_a_token_is_shown_once(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    created = cli("tokens", "create", "ci", "--role", "operator", "--workflows", "nightly-*", "--expires", "90d")
    token = daemon.access.tokens[0]
    text = read_token_text(created.out.strip())
    assert text is not None
    assert (text.id, token.role, list(token.narrowing.workflows)) == (
        token.id,
        access_rule_pb2.ROLE_OPERATOR,
        ["nightly-*"],
    )
    left = token.expires_at.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    assert timedelta(days=89.9) < left < timedelta(days=90)
    assert created.err.startswith("created token ci: operator, limited to nightly-*, until 20")
    assert created.err.endswith("; it is not shown again\n")
    assert text.text not in created.err
    again = cli("tokens", "create", "ci", "--role", "viewer")
    assert (again.code, again.err) == (6, "toban: cannot create token ci: a token has the name 'ci'\n")

    made = cli("tokens", "create", "json", "--role", "viewer", "-l", "team=data", "-o", "json").data
    assert made["token"]["narrowing"] == {"workflows": [], "labels": {"team": "data"}}
    assert made["text"].startswith(f"toban_{made['token']['id']}_")
    assert cli("tokens", "create", "named", "--role", "viewer", "-o", "name").out == "named\n"
    listed = cli("tokens", "list")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["NAME", "ci", "json", "named"]
    assert text.text not in listed.out
    assert cli("tokens", "list", "-o", "name").out == "ci\njson\nnamed\n"


def test_sessions(cli: Cli, daemon: FakeDaemon) -> None:
    created = cli("sessions", "create", "browser", "--role", "viewer", "--workflows", "nightly-*", "--expires", "1h")
    (session,) = daemon.access.sessions
    text = read_token_text(created.out.strip())
    assert text is not None
    assert (text.id, session.role, list(session.narrowing.workflows)) == (
        session.id,
        access_rule_pb2.ROLE_VIEWER,
        ["nightly-*"],
    )
    begin = f"created session {session.id} of uid:1000 (aiko): viewer, limited to nightly-*, until 20"
    assert created.err.startswith(begin)
    assert text.text not in created.err
    made = cli("sessions", "create", "-o", "json").data
    assert (made["session"]["role"], made["session"]["label"]) == ("admin", "")
    assert cli("sessions", "list", "-o", "name").out.split() == [session.id, made["session"]["id"]]
    assert "browser" in cli("sessions", "list").out
    revoked = cli("sessions", "revoke", session.id, "absent")
    assert (revoked.code, revoked.out) == (5, f"revoked {session.id}\n")
    assert revoked.err.splitlines() == [
        "toban: cannot revoke session absent: there is no session 'absent', or it has ended",
        "hint: `toban sessions list` lists sessions",
    ]
    daemon.access.identity.session_id = made["session"]["id"]
    assert f"session:   {made['session']['id']}" in cli("whoami").out
    assert cli("sessions", "revoke", made["session"]["id"][:8]).out == f"revoked {made['session']['id']}\n"


def test_a_token_goes_to_a_private_file(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "ci.token"
    created = cli("tokens", "create", "ci", "--role", "viewer", "--to", str(path))
    assert created.out == f"wrote {path}\n"
    assert read_token_text(path.read_text().strip())
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    taken = cli("tokens", "create", "other", "--role", "viewer", "--to", str(path))
    assert (taken.code, taken.err) == (2, f"toban: cannot create token other: {path}: File exists\n")
    refused = cli("tokens", "create", "ci", "--role", "viewer", "--to", str(tmp_path / "again"))
    assert refused.code == 6
    assert not (tmp_path / "again").exists()
    assert len(daemon.access.tokens) == 1
    written = cli("tokens", "create", "json", "--role", "viewer", "--to", str(tmp_path / "json"), "-o", "json")
    assert written.data["text"] == ""


def test_tokens_are_revoked(cli: Cli, daemon: FakeDaemon) -> None:
    one, two = (daemon.access.add_token(name, access_rule_pb2.ROLE_VIEWER) for name in ("one", "two"))
    result = cli("tokens", "revoke", "one", two.id, "three")
    assert (result.code, result.out) == (5, "revoked one\nrevoked two\n")
    assert result.err.splitlines() == [
        "toban: cannot revoke token three: there is no token 'three'",
        "hint: `toban tokens list` lists all tokens",
    ]
    assert cli("tokens", "list").err == "no tokens\n"
    assert [each["state"] for each in cli("tokens", "list", "--all", "-o", "json").data] == ["revoked"] * 2
    assert one.revoked_by == "uid:1000 (aiko)"


def test_tokens_are_revoked_by_parts_of_ids(cli: Cli, daemon: FakeDaemon) -> None:
    by_start, by_end, named = (
        daemon.access.add_token(name, access_rule_pb2.ROLE_VIEWER) for name in ("a", "b", "abcd1234")
    )
    by_start.id, by_end.id, named.id = "abcd123400000001", "abcd00000000beef", "1111111111111111"
    several = cli("tokens", "revoke", "abcd")
    assert (several.code, several.out) == (2, "")
    assert several.err.splitlines()[1:] == ["  abcd123400000001 a", "  abcd00000000beef b", "hint: give more of the id"]
    assert cli("tokens", "revoke", "abcd1234").out == "revoked abcd1234\n", "a name goes first"
    assert cli("tokens", "revoke", "ABCD12340", "beef").out == "revoked a\nrevoked b\n"


def test_lost_answers_about_tokens(daemon: FakeDaemon) -> None:
    with SyncClient(daemon.address, retry_for=30, connect_for=30) as client:
        daemon.lose["CreateToken"] = daemon.lose["RevokeToken"] = 1
        with pytest.raises(Conflict, match="may be lost: revoke that token"):
            client.create_token("ci", access_rule_pb2.ROLE_VIEWER)
        assert client.revoke_token("ci").state == access_pb2.TOKEN_STATE_REVOKED
        client.create_token("ci", access_rule_pb2.ROLE_VIEWER)
        with pytest.raises(Conflict, match="has the name"):
            client.create_token("ci", access_rule_pb2.ROLE_VIEWER)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tokens", "create", "x"], 2, "missing option '--role'"),
        (["tokens", "create", "x", "--role", "root"], 2, "'root' is not one of 'viewer', 'operator', 'editor'"),
        (["tokens", "create", "x", "--role", "viewer", "--expires", "soon"], 2, "neither a duration such as 90d nor"),
        (["tokens", "create", "x", "--role", "viewer", "--expires", "0d"], 2, "0d is not in the future"),
        (["tokens", "create", "x", "--role", "viewer", "--expires", "2020-01-01"], 2, "is not in the future"),
        (["tokens", "create", "x", "--role", "viewer", "-l", "x"], 2, "is not KEY=VALUE"),
        (["audit", "verify", "--known", "1:x"], 2, "1:x is not ENTRY:HASH"),
        (["audit", "show", "7"], 5, "cannot show entry 7 of the audit log: no such entry"),
        (["audit", "export", "--to", "x", "--after", "1"], 2, "cannot use --after with --to"),
        (["audit", "export", "--to", "/"], 2, "cannot export the audit log to /: Is a directory"),
        (["audit", "export", "-o", "json"], 2, "one format only"),
        (["access", "init", "--dir", "x"], 2, "missing option '--host'"),
        (["access", "init", "--dir", "x", "--host", "a:7233"], 2, "cannot use --host a:7233: expected a name"),
        (["access", "init", "--dir", "x", "--host", "a b"], 2, "cannot use --host a b"),
        (["access", "init", "--dir", "x", "--host", "a", "--user", "nobody-here"], 2, "there is no user nobody-here"),
        (["access", "renew", "--dir", "x"], 2, "cannot renew the certificates: x/ca.crt: No such file"),
    ],
)
def test_mistakes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli(*arguments)
    assert result.code == code
    assert message in result.err
    assert not os.listdir(tmp_path)


@pytest.fixture
def entries(daemon: FakeDaemon) -> list[access_pb2.AuditEntry]:
    add = daemon.access.add_entry
    return [
        add("uid:1000 (aiko)", "WorkflowService/CreateWorkflow", "nightly", detail="--- old\n+++ new\n+ run: true"),
        add("token:ci", "RunService/StartRun", "nightly", source="tls://10.0.0.7:7233"),
        add(
            "token:ci",
            "WorkflowService/DeleteWorkflow",
            "nightly",
            outcome=access_pb2.AUDIT_OUTCOME_REFUSED,
            reason="ROLE_REQUIRED",
        ),
    ]


def test_the_audit_log(cli: Cli, daemon: FakeDaemon, entries: list[access_pb2.AuditEntry]) -> None:
    rows = [line.split("  ") for line in cli("audit", "list").out.splitlines()]
    assert [row[0] for row in rows] == ["ENTRY", "3", "2", "1"]
    assert "refused: ROLE_REQUIRED" in "  ".join(rows[1])
    assert cli("audit", "list", "--actor", "token:ci", "-o", "name").out == "3\n2\n"
    assert cli("audit", "list", "--method", "StartRun", "-o", "name").out == "2\n"
    assert cli("audit", "list", "--refused", "--target", "nightly", "-o", "name").out == "3\n"
    limited = cli("audit", "list", "--limit", "2", "--since", "1d", "--until", "0s")
    assert "more available: use --limit 4" in limited.err
    assert daemon.seen[-1].HasField("recorded_after")
    assert daemon.seen[-1].HasField("recorded_before")
    shown = cli("audit", "show", "1").out
    assert "method:   WorkflowService/CreateWorkflow" in shown
    assert shown.endswith("\n\n--- old\n+++ new\n+ run: true\n")
    assert cli("audit", "show", "2", "-o", "json").data["source"] == "tls://10.0.0.7:7233"


def test_the_audit_log_is_verified(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("audit", "verify").out == "the audit log is empty\n"
    daemon.access.verified = access_pb2.VerifyAuditResponse(
        entries=3, first_sequence=1, last_sequence=3, last_hash=f"{3:064x}"
    )
    whole = cli("audit", "verify", "--known", f"2:{2:064x}")
    assert (whole.code, whole.out) == (0, "3 entries verified: 1 to 3\n")
    assert whole.err == f"hint: note this elsewhere: --known 3:{3:064x}\n"
    request = daemon.seen[-1]
    assert isinstance(request, access_pb2.VerifyAuditRequest)
    assert (request.known_sequence, request.known_hash) == (2, f"{2:064x}")
    daemon.access.verified.broken.sequence = 2
    daemon.access.verified.broken.reason = "its hash is another"
    broken = cli("audit", "verify")
    assert (broken.code, broken.out) == (1, "")
    assert broken.err == "toban: the audit log is broken at entry 2: its hash is another\n"


def test_the_audit_log_is_exported_and_continued(
    cli: Cli, daemon: FakeDaemon, entries: list[access_pb2.AuditEntry], tmp_path: Path
) -> None:
    assert [each["sequence"] for each in cli("audit", "export").objects] == [1, 2, 3]
    assert [each["sequence"] for each in cli("audit", "export", "--after", "2").objects] == [3]
    path = tmp_path / "audit.jsonl"
    assert cli("audit", "export", "--to", str(path)).err == f"wrote 3 entries to {path}\n"
    listed = cli("audit", "list", "-o", "json").data
    assert [json.loads(line) for line in path.read_text().splitlines()] == listed[::-1]
    # A line that was not finished, as after a kill, is written again.
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert cli("audit", "export", "--to", str(path)).err == f"wrote 1 entry to {path}\n"
    assert path.read_bytes() == whole
    daemon.access.add_entry("files", "apply")
    assert cli("audit", "export", "--to", str(path)).err == f"wrote 1 entry to {path}\n"
    for text in ("notes\n", "notes", '{"x": 1}\n', f"{whole.decode()}notes"):
        path.write_text(text)
        result = cli("audit", "export", "--to", str(path))
        assert (result.code, result.err.splitlines()[0]) == (
            2,
            f"toban: cannot export the audit log to {path}: its last line is not an entry",
        )
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("code", "reason", "hint"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REQUIRED", "hint: give a token: --token-file, TOBAN_TOKEN"),
        (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REVOKED", "hint: an admin creates a new token"),
        (grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED", "hint: `toban whoami` shows who you are"),
    ],
)
def test_everything_refused_exits_with_4(
    cli: Cli, daemon: FakeDaemon, code: grpc.StatusCode, reason: str, hint: str
) -> None:
    daemon.fail["WhoAmI"] = (code, "you are token:ci (viewer), this needs admin", (info(reason),))
    result = cli("whoami")
    assert (result.code, result.out) == (4, "")
    first, second = result.err.splitlines()
    assert first == "toban: cannot find out who you are: you are token:ci (viewer), this needs admin"
    assert second.startswith(hint)


@pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing")
def test_certificates_and_a_first_token(bare: Cli, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    result = bare("access", "init", "--dir", str(tls), "--host", "toban.example.org", "--host", "10.0.0.7")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tls.iterdir()}
    assert modes == {f"{name}.{kind}": mode for name in ("ca", "server", "client") for kind, mode in KINDS.items()}
    text = read_token_text(result.out.splitlines()[-1])
    assert text is not None
    assert f'digest = "{text.digest}"' in result.out
    assert f'certificate = "{tls}/server.crt"' in result.out
    assert hosts_of((tls / "server.crt").read_bytes()) == ["toban.example.org", "10.0.0.7"]
    before = {path.name: path.read_bytes() for path in tls.iterdir()}

    again = bare("access", "init", "--dir", str(tls), "--host", "other")
    assert (again.code, again.err.splitlines()[0]) == (6, f"toban: cannot make certificates: {tls}/ca.crt exists")
    assert {path.name: path.read_bytes() for path in tls.iterdir()} == before

    renewed = bare("access", "renew", "--dir", str(tls), "--days", "10", "-o", "json").data
    assert [Path(each).name for each in renewed["files"]] == ["server.crt", "server.key", "client.crt", "client.key"]
    assert (tls / "ca.crt").read_bytes() == before["ca.crt"]
    assert (tls / "server.crt").read_bytes() != before["server.crt"]
    assert hosts_of((tls / "server.crt").read_bytes()) == ["toban.example.org", "10.0.0.7"]
    # Certificate and key belong together, and the CA is one.
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    for name in ("server", "client"):
        context.load_cert_chain(tls / f"{name}.crt", tls / f"{name}.key")

    forced = bare("access", "init", "--dir", str(tls), "--host", "other", "--force", "-o", "json").data
    assert (tls / "ca.crt").read_bytes() != before["ca.crt"]
    token = read_token_text(forced["token"]["text"])
    assert token is not None
    assert token.digest in forced["config"]
    assert (tls / "ca.key").read_text() not in json.dumps(forced)


KINDS = {"crt": 0o644, "key": 0o600}


def test_without_cryptography(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['cryptography'] = None; from toban.cli.command_line import main; "
        f"sys.exit(main(['access', 'init', '--dir', {str(tmp_path / 'x')!r}, '--host', 'a']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            "toban: cannot make certificates: the Python package cryptography is missing",
            "hint: pip install 'toban[daemon]'",
        ],
    )
    assert not (tmp_path / "x").exists()
