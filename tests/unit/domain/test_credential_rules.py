"""Rules for credentials from elsewhere: which claims and certificates match, and where keys may come from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from toband.domain.credential_rules import (
    CertificateFacts,
    CertificateRule,
    ClaimRule,
    IssuerRules,
    RoleGrant,
    is_safe_key_url,
)
from toband.domain.identity import Role

VIEWER = RoleGrant(role=Role.VIEWER)
CLAIMS = {
    "sub": "aiko",
    "email": "aiko@example.com",
    "groups": ["web", "ops-night"],
    "realm_access": {"roles": ["toban-operator"]},
    "https://example.com/team": "web",
    "email_verified": True,
    "level": 3,
}


@pytest.mark.parametrize(
    ("claims", "matches"),
    [
        ({"sub": "aiko"}, True),
        ({"sub": "Aiko"}, False),
        ({"email": "*@example.com"}, True),
        ({"email": "*@example.com", "sub": "ren"}, False),
        ({"groups": "ops-*"}, True),
        ({"groups": "ops"}, False),
        ({"realm_access.roles": "toban-*"}, True),
        ({"realm_access.none": "*"}, False),
        ({"https://example.com/team": "web"}, True),
        ({"email_verified": "true"}, True),
        ({"email_verified": "True"}, False),
        ({"level": "3"}, True),
        ({"absent": "*"}, False),
        ({"realm_access": "*"}, False),
    ],
)
def test_all_claims_of_a_rule_must_match(claims: dict[str, str], matches: bool) -> None:
    assert ClaimRule(grant=VIEWER, claims=tuple(claims.items())).matches(CLAIMS) is matches


@pytest.mark.parametrize(
    ("name_claim", "name"),
    [("sub", "aiko"), ("email", "aiko@example.com"), ("absent", ""), ("groups", ""), ("level", "")],
)
def test_the_name_is_a_text_among_the_claims(name_claim: str, name: str) -> None:
    rules = IssuerRules(issuer="i", audience="a", label="oidc", rules=(), name_claim=name_claim)
    assert rules.name(CLAIMS) == name
    assert rules.name({name_claim: "line\nbreak"}) == ""


@pytest.mark.parametrize(
    ("patterns", "matches"),
    [
        ({"subject_cn": "build-7"}, True),
        ({"subject_cn": "build-*"}, True),
        ({"subject_cn": "*"}, True),
        ({"subject_cn": "build"}, False),
        ({"san": "*.ops.example.com"}, True),
        ({"san": "b.web.example.com"}, False),
        ({"subject_cn": "build-*", "san": "spiffe://*"}, False),
    ],
)
def test_certificates_match_by_their_names(patterns: dict[str, str], matches: bool) -> None:
    facts = CertificateFacts(
        subject_cn="build-7", san=("b.ops.example.com", "10.0.0.1"), not_after=datetime(2030, 1, 1, tzinfo=UTC)
    )
    assert CertificateRule(grant=VIEWER, **patterns).matches(facts) is matches


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://id.example/keys", True),
        ("http://127.0.0.1:8080/keys", True),
        ("http://[::1]/keys", True),
        ("http://localhost/keys", True),
        ("http://id.example/keys", False),
        ("http://127.0.0.1.example/keys", False),
        ("http://localhost@id.example/keys", False),
        ("ftp://127.0.0.1/keys", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("http://[::1", False),
    ],
)
def test_keys_come_over_tls_or_from_this_machine(url: str, safe: bool) -> None:
    assert is_safe_key_url(url) is safe


def test_the_first_matching_rule_counts() -> None:
    def rule(role: Role, **claims: Any) -> ClaimRule:
        return ClaimRule(grant=RoleGrant(role=role), claims=tuple(claims.items()))

    rules = (rule(Role.ADMIN, sub="ren"), rule(Role.EDITOR, groups="web"), rule(Role.VIEWER, sub="*"))
    found = IssuerRules(issuer="i", audience="a", label="oidc", rules=rules).rule(CLAIMS)
    assert found is not None
    assert found.grant.role is Role.EDITOR
    assert IssuerRules(issuer="i", audience="a", label="oidc", rules=rules).rule({}) is None
