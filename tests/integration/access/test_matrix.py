"""The access matrix: every RPC of the contract, for every kind of caller, over TLS and over a unix socket.

What is expected follows from `access_table.py`, not from the rules that the daemon reads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import message_factory
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from helpers.callers import logged_in
from helpers.daemon import Daemon, running_daemon
from helpers.gate import Gate
from helpers.wait import wait_until
from integration.access.access_table import TABLE, Row
from integration.access.sample_requests import REQUESTS, Target, job_source_of, source_of
from toban.certificate_authority import CertificateAuthority, KeyPair
from toban.token_text import new_token_text
from toban.v1 import (
    access_pb2,
    access_pb2_grpc,
    dead_letter_pb2,
    hook_pb2,
    hook_pb2_grpc,
    job_pb2,
    run_pb2,
    schedule_pb2,
    schedule_pb2_grpc,
)
from toband.api.access_rules import access_rules
from toband.api.call_limits import SERVED
from toband.domain.identity import Role

RULES = {path: rule for path, rule in access_rules().items() if rule is not None and path.startswith("/toban.")}
DAY = timedelta(days=1)
ISSUER = "https://issuer.test"
REACHED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED"}
"""How a call may end that was permitted. All else, such as a limit that was reached, proves nothing."""
ALLOWED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """A caller, and the reason for which all of its calls are refused; empty if its rights decide."""

    name: str
    metadata: Sequence[tuple[str, str]] = ()
    door: str = "tls"
    refused: str = ""
    role: Role | None = None
    narrowed: bool = False
    step: bool = False


def expected(who: Who, row: Row, target: str) -> str:
    """The reason of the refusal of a call; empty if it is allowed."""
    if row.signed:
        return who.refused if who.refused == "UNAVAILABLE" else ALLOWED
    if who.refused or row.role is None:
        return who.refused
    if who.step:
        mine = target == "chain" and who.name == "step"
        return ALLOWED if row.step == "all" or (row.step == "chain" and mine) else "STEP_NOT_PERMITTED"
    if who.role is None or who.role < row.role:
        return "ROLE_REQUIRED"
    foreign = who.narrowed and (row.narrowed == "no" or (row.narrowed == "own" and target == "other"))
    return "WORKFLOW_NOT_PERMITTED" if foreign else ALLOWED


# ------------------------------------------------------------------------------------------------ the daemon


class Doors:
    """The channels to the daemon."""

    def __init__(self, daemon: Daemon, base: Path, ca: CertificateAuthority, foreign: CertificateAuthority) -> None:
        addresses = json.loads((daemon.state_dir / "toband.json").read_bytes())["listen"]
        addresses = [each["address"] if isinstance(each, dict) else each for each in addresses]
        first, second = (each.removeprefix("tls://") for each in addresses if each.startswith("tls://"))
        root, mine = ca.pair.certificate, ca.client("robot", lifetime=DAY)
        self.channels = {
            "socket": grpc.insecure_channel(f"unix:{base}/closed.sock"),
            "open": grpc.insecure_channel(f"unix:{base}/open.sock"),
            "tls": _secure(first, root),
            "certificate": _secure(second, root, mine),
            "foreign": _secure(second, root, foreign.client("robot", lifetime=DAY)),
        }


def _secure(address: str, root: bytes, pair: KeyPair | None = None) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(root, pair.key if pair else None, pair.certificate if pair else None)
    return grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    doors: Doors
    targets: Mapping[str, Target]
    callers: Sequence[Who]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = tmp_path_factory.mktemp("m")
    ca, foreign = (CertificateAuthority.create("CA", lifetime=DAY) for _ in range(2))
    server = ca.server(["127.0.0.1"], lifetime=DAY)
    key = ec.generate_private_key(ec.SECP256R1())
    (base / "jwks.json").write_text(json.dumps({"keys": [_public(key)]}))
    for name, data in (("ca", ca.pair.certificate), ("crt", server.certificate), ("key", server.key)):
        (base / name).write_bytes(data)
        (base / name).chmod(0o600)
    (base / "toband.toml").write_text(f"""
listen = [
  "unix://{base}/s/toban.sock",
  {{ address = "unix://{base}/closed.sock", role = "none" }},
  {{ address = "unix://{base}/open.sock", role = "operator" }},
  "tls://127.0.0.1:0",
  {{ address = "tls://127.0.0.1:0", client_certificates = "required" }},
]
[limits]
failed_logins = 100000
request_rate = 100000
request_burst = 100000
[tls]
certificate = "{base}/crt"
key = "{base}/key"
client_ca = "{base}/ca"
[[access.certificates]]
subject_cn = "robot"
role = "operator"
[[access.issuers]]
issuer = "{ISSUER}"
audience = "toban"
jwks_file = "{base}/jwks.json"
rules = [{{ claims = {{ sub = "ci" }}, role = "viewer" }}]
""")
    gates = {name: Gate(f"{base}/{name}.gate") for name in ("held", "other-held")}
    with running_daemon(base / "s", "--config", str(base / "toband.toml")) as daemon:
        targets = {name: _target(daemon, name) for name in ("mine", "other")}
        steps = {name: _held_step(daemon, name, gate) for name, gate in gates.items()}
        targets["chain"] = _chain(daemon, steps["held"], targets["other"])
        doors = Doors(daemon, base, ca, foreign)
        try:
            yield Scene(doors=doors, targets=targets, callers=_callers(daemon, base, key, steps))
        finally:
            for channel in doors.channels.values():
                channel.close()
            for gate in gates.values():
                gate.release_now()


def _target(daemon: Daemon, name: str) -> Target:
    daemon.apply(source_of(name))
    definition = job_pb2.CreateJobRequest()
    definition.definition.source = job_source_of(name)
    daemon.jobs.CreateJob(definition, timeout=60)
    run, pinned = daemon.run(name), daemon.run(name)
    daemon.runs.PinRun(run_pb2.PinRunRequest(id=pinned.id), timeout=60)
    found = daemon.dead_letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest(workflow=name), timeout=60)
    letter = found.dead_letters[0].id
    daemon.dead_letters.DiscardDeadLetter(dead_letter_pb2.DiscardDeadLetterRequest(id=letter), timeout=60)
    request = schedule_pb2.CreateScheduleRequest(subject="matrix", workflow=name)
    request.rule.words = "every day at 9:00"
    schedules = schedule_pb2_grpc.ScheduleServiceStub(daemon.channel)
    schedule = schedules.CreateSchedule(request, timeout=60).schedule.id
    secret, *doomed = [_hook(daemon, name, each) for each in ("hook", *(f"doomed-{number}" for number in range(100)))]
    return Target(
        workflow=name,
        run=run.id,
        attempt=daemon.processes(run.id)[0].id,
        event=daemon.emit("MATRIX_OF", {"of": name}).id,
        letter=letter,
        schedule=schedule,
        hook_secret=secret.secret_value,
        doomed=iter([each.hook.name for each in doomed]),
        pinned=pinned.id,
    )


def _hook(daemon: Daemon, workflow: str, name: str) -> hook_pb2.CreateHookResponse:
    hooks = hook_pb2_grpc.HookServiceStub(daemon.channel)
    return hooks.CreateHook(hook_pb2.CreateHookRequest(name=f"{workflow}-{name}", workflow=workflow), timeout=60)


def _held_step(daemon: Daemon, name: str, gate: Gate) -> tuple[str, str]:
    """The metadata of a step that runs until the gate opens."""
    run = f'printf "$TOBAN_RUN_ID/$TOBAN_ATTEMPT_TOKEN"; read _ < {gate.path}'
    daemon.apply(json.dumps({"name": name, "description": "d", "steps": [{"name": "holds", "run": run}]}))
    run_id = daemon.start_run(name)
    printed: list[bytes] = []

    def origin() -> bytes:
        printed[:] = [daemon.log_of(run_id).get(run_pb2.LOG_STREAM_STDOUT, b"")]
        return printed[0]

    wait_until(lambda: len(origin()) > 40, "the step printed nothing")
    return ("toban-origin", printed[0].decode())


def _chain(daemon: Daemon, step: tuple[str, str], other: Target) -> Target:
    """A run of a foreign workflow that the step started, and an event that it emitted."""
    started = daemon.runs.StartRun(run_pb2.StartRunRequest(workflow="other"), timeout=60, metadata=(step,)).run
    daemon.wait_run(started.id)
    request = REQUESTS["EventService/EmitEvent"](other)
    request.payload_json = "{}"
    event = daemon.events.EmitEvent(request, timeout=60, metadata=(step,)).event.id
    attempt = daemon.processes(started.id)[0].id
    return Target(
        workflow="other",
        run=started.id,
        attempt=attempt,
        event=event,
        letter=other.letter,
        schedule=other.schedule,
        hook_secret=other.hook_secret,
        doomed=other.doomed,
    )


def _callers(
    daemon: Daemon, base: Path, key: ec.EllipticCurvePrivateKey, steps: Mapping[str, tuple[str, str]]
) -> Sequence[Who]:
    access = access_pb2_grpc.AccessServiceStub(daemon.channel)

    def token(name: str, role: Role, *, workflows: Sequence[str] = (), labels: Mapping[str, str] | None = None) -> str:
        request = access_pb2.CreateTokenRequest(name=name, role=role.value)  # type: ignore[arg-type]
        if workflows or labels:
            request.narrowing.workflows.extend(workflows)
            request.narrowing.labels.update(labels or {})
        return access.CreateToken(request, timeout=60).text

    def session(name: str, credential: str) -> str:
        """A session that the credential created."""
        metadata = (("authorization", f"Bearer {credential}"),)
        request = access_pb2.CreateSessionRequest(label=name)
        return access.CreateSession(request, timeout=60, metadata=metadata).text

    def of(name: str, text: str, **how: Any) -> Who:
        return Who(name=name, metadata=[("authorization", f"Bearer {text}")], **how)

    def signed(issuer: str, by: ec.EllipticCurvePrivateKey) -> str:
        until = datetime.now(UTC) + timedelta(hours=1)
        claims = {"iss": issuer, "aud": "toban", "sub": "ci", "exp": until, "iat": datetime.now(UTC)}
        return jwt.encode(claims, by, algorithm="ES256", headers={"kid": "k"})

    invalid, stranger = "CREDENTIAL_INVALID", ec.generate_private_key(ec.SECP256R1())
    revoked, expired = token("revoked", Role.ADMIN), access_pb2.CreateTokenRequest(name="expired", role=4)  # type: ignore[arg-type]
    revoked_session = session("revoked-session", revoked)
    access.RevokeToken(access_pb2.RevokeTokenRequest(token="revoked"), timeout=60)
    narrowed = token("narrowed", Role.ADMIN, workflows=["mine*"])
    soon = datetime.now(UTC) + timedelta(seconds=3)
    expired.expires_at.FromDatetime(soon)
    over = access.CreateToken(expired, timeout=60).text
    expired_session = session("expired-session", over)
    anyone = [of(role.label, token(role.label, role), role=role) for role in Role]
    anyone += [
        of("session", session("s", token("logged-in", Role.OPERATOR)), role=Role.OPERATOR),
        of("narrowed-session", session("n", narrowed), role=Role.ADMIN, narrowed=True),
        of("expired-session", expired_session, refused="CREDENTIAL_EXPIRED"),
        of("revoked-session", revoked_session, refused="CREDENTIAL_REVOKED"),
        of("narrowed", narrowed, role=Role.ADMIN, narrowed=True),
        of("labelled", token("labelled", Role.ADMIN, labels={"team": "mine"}), role=Role.ADMIN, narrowed=True),
        of("narrow-viewer", token("nv", Role.VIEWER, workflows=["mine*"]), role=Role.VIEWER, narrowed=True),
        Who(name="nobody", refused="CREDENTIAL_REQUIRED"),
        of("unknown", new_token_text().text, refused=invalid),
        of("no-token", "toban", refused=invalid),
        of("expired", over, refused="CREDENTIAL_EXPIRED"),
        of("revoked", revoked, refused="CREDENTIAL_REVOKED"),
        of("signed", signed(ISSUER, key), role=Role.VIEWER),
        of("other-issuer", signed("https://other.test", key), refused=invalid),
        of("other-key", signed(ISSUER, stranger), refused=invalid),
        Who(name="step", metadata=[steps["held"]], step=True),
        Who(name="other-step", metadata=[steps["other-held"]], step=True),
        Who(name="no-step", metadata=[("toban-origin", "gone/token")], refused="STEP_ENDED"),
    ]
    callers = [Who(**{**_fields(each), "door": door}) for door in ("tls", "socket") for each in anyone]
    user = of("user", logged_in(base / "open.sock.login"), role=Role.OPERATOR)
    callers += [Who(name="anybody", door="open", role=Role.OPERATOR), Who(**{**_fields(user), "door": "open"})]
    callers.append(Who(name="certificate", door="certificate", role=Role.OPERATOR))
    callers.append(Who(name="foreign-certificate", door="foreign", refused="UNAVAILABLE"))
    wait_until(lambda: datetime.now(UTC) > soon, "the token has not expired")
    return callers


def _fields(who: Who) -> dict[str, Any]:
    return {name: getattr(who, name) for name in Who.__slots__}


def _public(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    public: dict[str, Any] = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return public | {"kid": "k", "alg": "ES256", "use": "sig"}


# ------------------------------------------------------------------------------------------------ the matrix


def outcome(call: Callable[[], Any]) -> str:
    """The reason of a refusal by access; empty if the call got further, however it ended."""
    try:
        answer = call()
        if hasattr(answer, "cancel"):
            next(iter(answer), None)
            answer.cancel()
    except grpc.RpcError as error:
        return _refusal(error)
    return ALLOWED


def _refusal(error: Any) -> str:
    code, status = error.code(), rpc_status.from_call(error)
    if code.name in REACHED:
        return ALLOWED
    if code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return str(code.name) if status is None else f"{code.name}: {error.details()}"
    info = error_details_pb2.ErrorInfo()
    assert status is not None, error
    assert any(detail.Unpack(info) for detail in status.details), error
    return str(info.reason)


def caller_of(channel: grpc.Channel, path: str) -> Any:
    """The stub of a method, made from its descriptor."""
    service_name, _, name = path.removeprefix("/").partition("/")
    service = next(each for each in SERVED if each.full_name == service_name)
    method = service.methods_by_name[name]
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    answer = message_factory.GetMessageClass(method.output_type)
    return make(
        path, request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString
    )


def test_every_method_has_a_row_and_a_sample_request() -> None:
    methods = {rule.method for rule in RULES.values()}
    assert methods == set(TABLE), "add a row to access_table.py"
    assert methods == set(REQUESTS), "add a request to sample_requests.py"


def test_the_contract_says_what_the_table_says() -> None:
    assert {rule.method: rule.role for rule in RULES.values()} == {name: row.role for name, row in TABLE.items()}
    assert {rule.method for rule in RULES.values() if rule.steps} == {
        name for name, row in TABLE.items() if row.step != "no"
    }
    assert [rule.method for rule in RULES.values() if rule.signed] == [
        name for name, row in TABLE.items() if row.signed
    ]


def test_every_caller_gets_what_its_rights_say(scene: Scene) -> None:
    wrong, counted = list[str](), Counter[str]()
    for who in scene.callers:
        channel = scene.doors.channels[who.door]
        for path, rule in RULES.items():
            call, row = caller_of(channel, path), TABLE[rule.method]
            for name, target in scene.targets.items():
                if (name == "other" and not (who.narrowed or who.step)) or (name == "chain" and not who.step):
                    continue
                request = REQUESTS[rule.method](target)
                found = outcome(lambda: call(request, timeout=20, metadata=who.metadata))  # noqa: B023
                counted[found] += 1
                if found != (right := expected(who, row, name)):
                    wrong.append(f"{who.name} over {who.door}: {rule.method} of {name}: {found!r}, expected {right!r}")
    assert not wrong, "\n".join(wrong)
    assert counted[ALLOWED] > 500
    for reason in {who.refused for who in scene.callers if who.refused}:
        assert counted[reason] >= len(RULES) - 1, reason
    assert min(counted[reason] for reason in ("ROLE_REQUIRED", "WORKFLOW_NOT_PERMITTED", "STEP_NOT_PERMITTED")) > 50
