"""The `[access]` tables: tokens, and the rules for client certificates and signed tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from toban.definition.scalars.names import check_name
from toband.config.declaration import NestedError, at
from toband.config.value_checks import check_role, check_text, shown, unknown_key
from toband.domain.credential_rules import (
    CertificateRule,
    ClaimRule,
    ConfiguredToken,
    IssuerRules,
    RoleGrant,
    is_safe_key_url,
)
from toband.domain.identity import Narrowing, Role

_DIGEST = re.compile("[0-9a-f]{64}")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_GRANT = ("role", "workflows", "labels")
_RESERVED = frozenset({"uid", "token", "socket", "step", "certificate", "role", "files"})
"""Beginnings of the names of other identities."""


def check_tokens(value: Any) -> tuple[ConfiguredToken, ...]:
    found = []
    for name, table in _tables(value).items():
        if not _TOKEN_NAME.fullmatch(name):
            raise ValueError(f"found the name {shown(name)}, expected 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'")
        with_place = at(f"[access.tokens.{name}]", name)
        fields = with_place(_fields, table, {*_GRANT, "digest", "expires"}, {"role", "digest"})
        found.append(
            ConfiguredToken(
                name=name,
                digest=with_place(_digest, fields["digest"]),
                grant=with_place(_grant, fields),
                expires_at=with_place(_expiry, fields["expires"]) if "expires" in fields else None,
            )
        )
    return tuple(found)


def check_certificates(value: Any) -> tuple[CertificateRule, ...]:
    found = []
    for number, table in enumerate(_list(value, "[[access.certificates]]"), start=1):
        with_place = at(f"rule {number}", number - 1)
        fields = with_place(_fields, table, {*_GRANT, "subject_cn", "san", "name"}, {"role"})
        texts = {key: with_place(check_text, fields.get(key, "")) for key in ("subject_cn", "san", "name")}
        if not texts["subject_cn"] and not texts["san"]:
            text = f"rule {number}: needs `subject_cn` or `san`, a name or pattern ('*' matches all)"
            raise NestedError(text, number - 1)
        found.append(CertificateRule(grant=with_place(_grant, fields), **texts))
    return tuple(found)


def check_issuers(value: Any) -> tuple[IssuerRules, ...]:
    found = [
        at(f"issuer {number}", number - 1)(_issuer, table)
        for number, table in enumerate(_list(value, "[[access.issuers]]"), start=1)
    ]
    for what in ("issuer", "label"):
        values = [getattr(each, what) for each in found]
        twice = [each for each in values if values.count(each) > 1]
        if twice:
            key = "name" if what == "label" else what
            raise ValueError(f"two issuers have the {key} {shown(twice[0])}; give each its own `{key}`")
    return tuple(found)


def _issuer(table: Any) -> IssuerRules:
    known = {"issuer", "name", "audience", "jwks_file", "jwks_url", "name_claim", "rules"}
    fields = _fields(table, known, {"issuer", "audience", "rules"})
    texts = {key: check_text(fields[key]) for key in known - {"rules"} if key in fields}
    if ("jwks_file" in texts) == ("jwks_url" in texts):
        raise ValueError("needs either `jwks_file` or `jwks_url`")
    if not texts["issuer"] or not texts["audience"]:
        raise ValueError("`issuer` and `audience` must not be empty")
    label = _label(texts.pop("name", "oidc"))
    if "jwks_file" in texts and not os.path.isabs(texts["jwks_file"]):
        raise NestedError(f"jwks_file: found {shown(texts['jwks_file'])}, expected an absolute path", "jwks_file")
    if "jwks_url" in texts:
        _check_url(texts["jwks_url"])
    rules = [
        at(f"rule {number}", "rules", number - 1)(_claim_rule, each)
        for number, each in enumerate(_list(fields["rules"], "rules"), start=1)
    ]
    return IssuerRules(label=label, rules=tuple(rules), **texts)


def _claim_rule(table: Any) -> ClaimRule:
    fields = _fields(table, {*_GRANT, "claims"}, {"role", "claims"})
    claims = fields["claims"]
    if not isinstance(claims, Mapping) or not claims or not all(isinstance(each, str) for each in claims.values()):
        raise NestedError(f"claims: found {shown(claims)}, expected patterns such as {{ groups = 'ops' }}", "claims")
    return ClaimRule(grant=_grant(fields), claims=tuple(claims.items()))


def _grant(fields: Mapping[str, Any]) -> RoleGrant:
    role = check_role()(fields["role"])
    assert isinstance(role, Role)
    workflows, labels = fields.get("workflows", []), fields.get("labels", {})
    if not isinstance(workflows, list) or not all(isinstance(each, str) and each for each in workflows):
        raise ValueError(f"workflows: found {shown(workflows)}, expected names or patterns such as ['nightly-*']")
    if not isinstance(labels, Mapping) or not all(isinstance(each, str) for each in labels.values()):
        raise ValueError(f"labels: found {shown(labels)}, expected labels such as {{ team = 'ops' }}")
    narrowed = "workflows" in fields or "labels" in fields
    narrowing = Narrowing(workflows=tuple(workflows), labels=tuple(labels.items())) if narrowed else None
    return RoleGrant(role=role, narrowing=narrowing)


def _digest(value: Any) -> str:
    text = check_text(value)
    if not _DIGEST.fullmatch(text):
        raise ValueError("digest: expected the 64 digits that `toban access init` printed")
    return text


def _expiry(value: Any) -> datetime:
    """TOML has times of its own; a date is the beginning of that day, and without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"expires: found {shown(value)}, expected a time such as 2027-01-31T00:00:00Z") from None
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise ValueError(f"expires: found {shown(value)}, expected a time such as 2027-01-31T00:00:00Z")


def _label(value: str) -> str:
    check_name(value)
    if value in _RESERVED:
        raise ValueError(f"name: {value!r} is reserved; choose another")
    return value


def _check_url(url: str) -> None:
    if not is_safe_key_url(url):
        raise ValueError(
            f"jwks_url: found {shown(url)}, expected https://… (http:// only to this machine: "
            "without TLS the keys could be replaced on the way)"
        )


def _fields(table: Any, known: set[str], required: set[str]) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise ValueError(f"found {shown(table)}, expected a table")
    if unknown := set(table) - known:
        raise NestedError(unknown_key(min(unknown), known), min(unknown))
    if missing := required - set(table):
        raise ValueError(f"needs `{min(missing)}`")
    return table


def _tables(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"found {shown(value)}, expected tables such as [access.tokens.admin]")
    return value


def _list(value: Any, example: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"found {shown(value)}, expected tables such as {example}")
    return value
