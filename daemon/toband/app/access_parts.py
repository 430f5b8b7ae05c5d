"""The parts that establish the identity of a call."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from toban.token_text import TokenText, new_token_text
from toband.api.access_rules import access_rules
from toband.api.audited_calls import AuditedCalls
from toband.api.call_limits import Lanes
from toband.api.client_limits import ClientLimits
from toband.api.interceptor import CallGate, PermissionCheck
from toband.config import Config, ServerLimits
from toband.domain.credential_rules import CertificateFacts, ConfiguredToken, ExpiringCertificate, RoleGrant
from toband.domain.identity import Role
from toband.domain.run_model import Run
from toband.engine.access.authentication import Authenticator
from toband.engine.access.door import Door
from toband.engine.access.external_identities import CertificateIdentities, IssuerIdentities
from toband.engine.access.live_streams import LiveStreams
from toband.engine.access.login_tokens import LoginTokens
from toband.engine.access.sessions import Sessions
from toband.engine.access.step_tokens import StepTokens
from toband.engine.access.tokens import Tokens
from toband.engine.execution.step_maskers import StepMaskers
from toband.engine.health.expiry_watch import ExpiryWatch
from toband.memory_trim import Trimmer
from toband.ports import AccessStore, Clock, Conditions
from toband.signed_credentials.jwt_verifier import JwtVerifier
from toband.state_dir import ADMIN_TOKEN


class AccessParts:
    """`admin` is a token that a file of the state directory has, for whom the file system lets read it."""

    def __init__(
        self,
        config: Config,
        store: AccessStore,
        clock: Clock,
        active: Callable[[str], Run | None],
        *,
        conditions: Conditions,
        admin: TokenText | None,
    ) -> None:
        self._admin = admin
        tls = {"tls.certificate": config.tls.certificate, "tls.client_ca": config.tls.client_ca}
        self.expiry = ExpiryWatch(
            certificates=partial(_certificate_ends, {key: path for key, path in tls.items() if path}),
            tokens=config.access_tokens,
            clock=clock,
            conditions=conditions,
        )
        self.streams = LiveStreams()
        self.tokens = Tokens(store=store, clock=clock, streams=self.streams, configured=self._configured(config))
        self.logins = LoginTokens(clock)
        self.sessions = Sessions(clock, self.streams)
        self.steps = StepTokens(active, self.streams)
        self._certificates = CertificateIdentities(config.access_certificates, _certificate_facts, clock)
        self._issuers = IssuerIdentities(config.access_issuers, JwtVerifier(config.access_issuers))
        self.authenticator = Authenticator(
            tokens=self.tokens,
            logins=self.logins,
            sessions=self.sessions,
            steps=self.steps,
            certificates=self._certificates,
            issuers=self._issuers,
        )
        limits = config.server_limits
        self._lanes = Lanes(calls=limits.calls_per_identity, streams=limits.streams_per_identity)
        self._limits = ClientLimits(limits)

    def use_credentials(self, config: Config) -> None:
        """Replaces the tokens and rules. Ends the streams of those that are gone or changed."""
        self.tokens.use(self._configured(config))
        self.expiry.use(config.access_tokens)
        self._certificates.use(config.access_certificates, self.streams)
        self._issuers.use(config.access_issuers, self.streams)

    def use_limits(self, limits: ServerLimits) -> None:
        """Replaces the limits that do not belong to gRPC."""
        self._lanes.use(calls=limits.calls_per_identity, streams=limits.streams_per_identity)
        self._limits.use(limits)

    @property
    def failed_logins(self) -> int:
        """Failures of a source that have no consequences."""
        return self._limits.failed_logins

    def _configured(self, config: Config) -> list[ConfiguredToken]:
        found = list(config.access_tokens)
        if self._admin is not None:
            grant = RoleGrant(role=Role.ADMIN)
            found.append(ConfiguredToken(name=ADMIN_TOKEN, digest=self._admin.digest, grant=grant))
        return found

    def gate(self, permissions: PermissionCheck, audit: AuditedCalls, maskers: StepMaskers) -> CallGate:
        return CallGate(
            lanes=self._lanes,
            rules=access_rules(),
            authenticator=self.authenticator,
            permissions=permissions,
            audit=audit,
            limits=self._limits,
            maskers=maskers,
            streams=self.streams,
            trimmer=Trimmer(),
        )

    def companions(self) -> list[Coroutine[Any, Any, None]]:
        return [self.tokens.note_uses(), self.steps.watch(), self.expiry.run()]


def admin_token_for(doors: Sequence[Door]) -> TokenText | None:
    """A token for the user of a daemon with a port without TLS, which every user of this machine can reach."""
    plain = [door for door in doors if "://" not in door.address and door.role is None]
    return new_token_text() if plain else None


def user_name() -> str:
    """The user of this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid:{os.getuid()}" if hasattr(os, "getuid") else ""


def _certificate_ends(paths: Mapping[str, str]) -> Sequence[ExpiringCertificate]:
    if not paths:
        return ()
    from toband.signed_credentials.certificate_reader import read_expiry

    return read_expiry(paths)


def _certificate_facts(pem: bytes) -> CertificateFacts:
    """Raises ValueError."""
    # The library takes megabytes, and most daemons have no client certificates.
    from toband.signed_credentials.certificate_reader import read_certificate

    return read_certificate(pem)
