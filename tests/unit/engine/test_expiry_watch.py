"""What expires is reported 30 days before, and no longer once it was renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from doubles.clock import Clock
from doubles.conditions import Conditions
from helpers import certificates
from toband.domain.credential_rules import ConfiguredToken, RoleGrant
from toband.domain.identity import Role
from toband.engine.health.expiry_watch import ExpiryWatch
from toband.signed_credentials.certificate_reader import read_expiry

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def watch(conditions: Conditions, clock: Clock, paths: dict[str, Path], ends: datetime | None = None) -> ExpiryWatch:
    token = ConfiguredToken(name="ops", digest="d", grant=RoleGrant(role=Role.ADMIN), expires_at=ends)
    return ExpiryWatch(
        certificates=partial(read_expiry, {key: str(path) for key, path in paths.items()}),
        tokens=[token],
        clock=clock,
        conditions=conditions,
    )


async def test_a_certificate_is_reported_30_days_before_it_expires(tmp_path: Path) -> None:
    ca = certificates.authority()
    stored = certificates.store(certificates.server(ca, lifetime=61 * DAY), tmp_path)
    conditions, clock = Conditions(), Clock(NOW)
    watching = watch(conditions, clock, {"tls.certificate": stored.certificate})
    await watching.look()
    assert conditions.now == {}
    clock.at = NOW + 31.5 * DAY
    await watching.look()
    assert f"tls.certificate ({stored.certificate}) expires on " in conditions.now["expiry"]
    assert conditions.now["expiry"].endswith("in 28 days: renew what expires")
    clock.at = NOW + 61 * DAY
    await watching.look()
    assert " expired on " in conditions.now["expiry"]
    certificates.store(certificates.server(ca, lifetime=200 * DAY), tmp_path)
    await watching.look()
    assert conditions.now == {}


async def test_every_certificate_of_a_file_and_every_token_counts(tmp_path: Path) -> None:
    ca = certificates.authority()
    both = tmp_path / "ca.crt"
    both.write_bytes(certificates.server(ca).certificate + certificates.client(ca, "ops").certificate)
    broken = tmp_path / "broken.crt"
    broken.write_text("no certificate")
    conditions = Conditions()
    paths = {"tls.client_ca": both, "tls.certificate": broken, "tls.key": tmp_path / "missing"}
    await watch(conditions, Clock(NOW), paths, NOW + 3 * DAY).look()
    told = conditions.now["expiry"]
    assert f"certificate 1 of tls.client_ca ({both}) expires on " in told
    assert "certificate 2 of tls.client_ca" in told
    assert "access.tokens.ops expires on " in told
