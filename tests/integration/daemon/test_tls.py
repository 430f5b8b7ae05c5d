"""Calls over TLS: tokens, client certificates and signed tokens, and certificates that are replaced meanwhile."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers import certificates
from helpers.callers import Caller, calling
from helpers.daemon import Daemon, running_daemon
from helpers.issuer import AUDIENCE, NAME, Issuer, jwks
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.certificate_authority import KeyPair
from toban.token_text import new_token_text
from toban.v1 import access_pb2, access_rule_pb2, run_pb2, system_pb2, system_pb2_grpc
from toband import exit_codes

CA, FOREIGN = certificates.authority(), certificates.authority("foreign CA")
ISSUER = Issuer()
TOKEN = new_token_text()
FORTNIGHT = timedelta(days=14)


@dataclass(frozen=True)
class Host:
    daemon: Daemon
    files: Path
    tokens: str
    """The address that requires no client certificate."""
    clients: str
    """The address that requires one."""

    def log(self) -> str:
        return self.daemon.log.read_text()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    files = tmp_path_factory.mktemp("f")
    certificates.store(certificates.server(CA), files)
    (files / "ca.crt").write_bytes(CA.pair.certificate)
    (files / "jwks.json").write_bytes(jwks(ISSUER))
    config = files / "toband.toml"
    config.write_text(f"""
listen = [
  "unix://{files}/s/toban.sock",
  "tls://127.0.0.1:0",
  {{ address = "tls://127.0.0.1:0", client_certificates = "required" }},
]
[tls]
certificate = "server.crt"
key = "server.key"
client_ca = "ca.crt"
[access.tokens.first]
role = "operator"
digest = "{TOKEN.digest}"
[[access.certificates]]
subject_cn = "build-*"
role = "viewer"
[[access.issuers]]
issuer = "{NAME}"
name = "keycloak"
audience = "{AUDIENCE}"
jwks_file = "{files}/jwks.json"
rules = [{{ claims = {{ groups = "ops" }}, role = "editor" }}]
""")
    with running_daemon(files / "s", "--config", str(config)) as daemon:
        listen = json.loads((files / "s/toband.json").read_text())["listen"]
        yield Host(daemon, files, *(address.removeprefix("tls://") for address in listen[1:]))


def trusting(ca: bytes = CA.pair.certificate, own: KeyPair | None = None) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(ca, own.key if own else None, own.certificate if own else None)


def unreachable(address: str, tls: grpc.ChannelCredentials) -> None:
    with calling(address, tls=tls) as caller, pytest.raises(grpc.RpcError) as caught:
        caller.access.WhoAmI(access_pb2.WhoAmIRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_token_over_tls(host: Host) -> None:
    with calling(host.tokens, TOKEN.text, tls=trusting()) as caller:
        identity = caller.who()
        assert (identity.name, identity.role) == ("token:first", access_rule_pb2.ROLE_OPERATOR)
        assert caller.access.WhoAmI(access_pb2.WhoAmIRequest(), timeout=20).address == f"tls://{host.tokens}"
    with calling(host.tokens, tls=trusting()) as caller:
        assert refused(caller.who).reason == "CREDENTIAL_REQUIRED"
    unreachable(host.tokens, trusting(FOREIGN.pair.certificate))
    with calling(host.tokens) as plain, pytest.raises(grpc.RpcError):
        plain.access.WhoAmI(access_pb2.WhoAmIRequest(), timeout=5)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_below_tls_1_2_and_1_3_if_the_client_can(host: Host) -> None:
    def spoken(least: ssl.TLSVersion, most: ssl.TLSVersion) -> str | None:
        client = ssl.create_default_context(cadata=CA.pair.certificate.decode())
        # OpenSSL itself refuses the old versions at its usual level.
        client.set_ciphers("ALL:@SECLEVEL=0")
        client.minimum_version, client.maximum_version = least, most
        client.set_alpn_protocols(["h2"])
        name, _, port = host.tokens.rpartition(":")
        connection = socket.create_connection((name, int(port)), 20)
        with connection, client.wrap_socket(connection, server_hostname="localhost") as secured:
            return secured.version()

    versions = ssl.TLSVersion
    assert spoken(versions.TLSv1, versions.TLSv1_3) == "TLSv1.3"
    assert spoken(versions.TLSv1, versions.TLSv1_2) == "TLSv1.2"
    for old in (versions.TLSv1, versions.TLSv1_1):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            spoken(old, old)


def test_health_warns_of_certificates_that_expire(host: Host) -> None:
    """Those of the tests live for two days."""

    def told() -> str:
        health = host.daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health
        return next((each.detail for each in health.conditions if each.name == "expiry"), "")

    wait_until(told, "nothing expires")
    assert f"tls.certificate ({host.files}/server.crt) expires on " in told()
    assert f"tls.client_ca ({host.files}/ca.crt) expires on " in told()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"groups": ["web"]}, "CREDENTIAL_INVALID"),
        ({"groups": ["ops"], "aud": "other"}, "CREDENTIAL_INVALID"),
        ({"groups": ["ops"], "iss": "https://other.example"}, "CREDENTIAL_INVALID"),
        ({"groups": ["ops"], "exp": int(time.time()) - 3600}, "CREDENTIAL_EXPIRED"),
    ],
)
def test_a_signed_token_that_proves_nothing(host: Host, claims: dict[str, Any], reason: str) -> None:
    with calling(host.tokens, ISSUER.token(**claims), tls=trusting()) as caller:
        assert refused(caller.who).reason == reason


def test_a_signed_token_of_an_issuer(host: Host) -> None:
    with calling(host.tokens, ISSUER.token(groups=["web", "ops"]), tls=trusting()) as caller:
        identity = caller.who()
    assert (identity.name, identity.role) == ("keycloak:aiko", access_rule_pb2.ROLE_EDITOR)
    with calling(host.tokens, ISSUER.token(groups="ops", exp=int(time.time()) - 5), tls=trusting()) as caller:
        assert caller.who().name == identity.name, "clocks may differ a little"
    assert identity.kind == access_pb2.IDENTITY_KIND_ISSUER
    assert identity.expires_at.seconds > time.time()
    with calling(host.tokens, Issuer().token(groups=["ops"]), tls=trusting()) as caller:
        assert refused(caller.who).reason == "CREDENTIAL_INVALID"


def test_a_client_certificate_by_the_rules(host: Host) -> None:
    with calling(host.clients, tls=trusting(own=certificates.client(CA, "build-7"))) as caller:
        identity = caller.who()
        assert (identity.name, identity.role) == ("certificate:build-7", access_rule_pb2.ROLE_VIEWER)
        assert identity.kind == access_pb2.IDENTITY_KIND_CERTIFICATE
        assert list(identity.aliases) == ["build-7"]
    with calling(host.clients, tls=trusting(own=certificates.client(CA, "build-:token:ci"))) as caller:
        assert not caller.who().aliases, "no approver, who may be named with a colon, is meant by it"
    with calling(host.clients, tls=trusting(own=certificates.client(CA, "web-7"))) as caller:
        assert refused(caller.who).reason == "CREDENTIAL_INVALID", "no rule matches it"
    with calling(host.clients, TOKEN.text, tls=trusting(own=certificates.client(CA, "web-7"))) as caller:
        assert caller.who().name == "token:first", "a token says more than the certificate"


@pytest.mark.parametrize(
    "own",
    [
        None,
        certificates.client(FOREIGN, "build-7"),
        certificates.client(CA, "build-7", lifetime=timedelta(minutes=1)),
        certificates.client(CA, "build-7", begins=FORTNIGHT, lifetime=FORTNIGHT),
    ],
    ids=["none", "foreign", "expired", "not yet valid"],
)
def test_no_connection_without_a_valid_client_certificate(host: Host, own: KeyPair | None) -> None:
    unreachable(host.clients, trusting(own=own))


def test_a_new_certificate_is_used_at_once_and_streams_go_on(host: Host) -> None:
    new_ca = certificates.authority("new CA")
    with calling(host.tokens, TOKEN.text, tls=trusting()) as before:
        stream = before.runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=60)
        assert next(iter(stream)).position
        certificates.store(certificates.server(new_ca), host.files)
        with calling(host.tokens, TOKEN.text, tls=trusting(new_ca.pair.certificate)) as caller:
            assert caller.who().name == "token:first"
        unreachable(host.tokens, trusting())
        assert stream.is_active()
        host.daemon.apply("name: while-reloaded\ndescription: x\nsteps: [{name: only, run: 'true'}]\n")
        run_id = host.daemon.start_run("while-reloaded")
        assert next(iter(stream)).run.id == run_id, "the stream of before still delivers"
        stream.cancel()
    # Half of a pair, or no pair at all, changes nothing.
    (host.files / "server.key").write_bytes(certificates.server(FOREIGN).key)
    with calling(host.tokens, TOKEN.text, tls=trusting(new_ca.pair.certificate)) as caller:
        assert caller.who().name == "token:first"
    wait_until(lambda: "does not belong to the certificate" in host.log(), "the mistake is not reported")
    certificates.store(certificates.server(CA), host.files)
    with calling(host.tokens, TOKEN.text, tls=trusting()) as caller:
        assert caller.who().name == "token:first"
    host.daemon.wait_run(run_id)


def test_the_end_of_a_token_or_a_rule_in_the_configuration_ends_its_streams(host: Host) -> None:
    config = host.files / "toband.toml"
    written = config.read_text()
    system = system_pb2_grpc.SystemServiceStub(host.daemon.channel)
    build = trusting(own=certificates.client(CA, "build-7"))
    credentials = [
        (host.tokens, TOKEN.text, trusting()),
        (host.tokens, ISSUER.token(groups=["ops"]), trusting()),
        (host.clients, "", build),
    ]
    others = written.replace('subject_cn = "build', 'subject_cn = "other').replace('"ops"', '"others"')
    with ExitStack() as stack:
        callers = [stack.enter_context(calling(address, text, tls=tls)) for address, text, tls in credentials]
        streams = [each.runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=60) for each in callers]
        assert all(next(iter(each)).position for each in streams)
        try:
            config.write_text(f"{written}\n[log]\nlevel = 'debug'")
            assert not system.ReloadConfig(system_pb2.ReloadConfigRequest(), timeout=20).problems
            assert all(each.is_active() for each in streams), "their rules did not change"
            config.write_text(others.replace(TOKEN.digest, new_token_text().digest))
            assert not system.ReloadConfig(system_pb2.ReloadConfigRequest(), timeout=20).problems
            for stream, caller in zip(streams, callers, strict=True):
                assert refused(partial(list, stream)).reason == "CREDENTIAL_REVOKED"
                assert refused(caller.who).reason == "CREDENTIAL_INVALID"
        finally:
            config.write_text(written)
            system.ReloadConfig(system_pb2.ReloadConfigRequest(), timeout=20)
        assert [caller.who().role for caller in callers] == [2, 3, 1]


def test_health_needs_no_credential_and_reflection_does(host: Host) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with calling(host.tokens, tls=trusting()) as caller:
        check = health_pb2_grpc.HealthStub(caller.channel).Check
        assert check(health_pb2.HealthCheckRequest(), timeout=20).status == health_pb2.HealthCheckResponse.SERVING
        reflect = reflection_pb2_grpc.ServerReflectionStub(caller.channel).ServerReflectionInfo
        assert refused(lambda: reflect(iter([asked]), timeout=20)).reason == "CREDENTIAL_REQUIRED"
    (answer,) = reflection_pb2_grpc.ServerReflectionStub(host.daemon.channel).ServerReflectionInfo(
        iter([asked]), timeout=20
    )
    assert "toban.v1.AccessService" in {each.name for each in answer.list_services_response.service}


def test_the_daemon_does_not_start_with_a_certificate_that_has_expired(tmp_path: Path) -> None:
    pair = certificates.server(CA, begins=-FORTNIGHT, lifetime=timedelta(days=7))
    expired = certificates.store(pair, tmp_path)
    config = tmp_path / "toband.toml"
    config.write_text(f'listen = ["tls://127.0.0.1:0"]\n[tls]\ncertificate = "server.crt"\nkey = "{expired.key}"\n')
    daemon = Daemon(tmp_path / "s", "--config", str(config))
    daemon.start(wait=False)
    assert daemon.wait() == exit_codes.FAILED
    assert daemon.log.read_text().startswith(f"toband: tls.certificate: {expired.certificate} expired on ")


def test_callers_see_the_peer_in_the_audit_log(host: Host) -> None:
    with calling(host.tokens, new_token_text().text, tls=trusting()) as caller:
        assert refused(caller.who).reason == "CREDENTIAL_INVALID"
    admin = Caller(host.daemon.channel)

    def recorded() -> list[access_pb2.AuditEntry]:
        request = access_pb2.ListAuditEntriesRequest(outcome=access_pb2.AUDIT_OUTCOME_REFUSED)
        return [
            each
            for each in admin.access.ListAuditEntries(request, timeout=20).entries
            if each.reason == "CREDENTIAL_INVALID" and each.source == f"tls://{host.tokens} ipv4:127.0.0.1"
        ]

    (entry, *_) = wait_until(recorded, "the refusal is not recorded")
    assert entry.method == "AccessService/WhoAmI"
