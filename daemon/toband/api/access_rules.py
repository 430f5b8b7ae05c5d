"""The access rules of all methods, read from the contract. A method without a rule is not served."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from toban.v1 import access_rule_pb2
from toband.api.call_limits import ALL_SERVED, SERVED
from toband.domain.access_rule import AccessRule, CallTarget
from toband.domain.identity import Role


class NoAccessRuleError(Exception):
    """Methods of the contract without a rule; the argument names them."""


_HEALTH = frozenset({"Health/Check", "Health/Watch", "Health/List"})
"""Need no identity: load balancers ask without a credential."""


def access_rules(
    services: Iterable[Any] = ALL_SERVED, *, own: Container[Any] = SERVED
) -> Mapping[str, AccessRule | None]:
    """The rule of each method such as `/toban.v1.RunService/GetRun`; None for one that needs no identity.

    The services in `own` have their rules in the contract. Raises NoAccessRuleError.
    """
    found: dict[str, AccessRule | None] = {}
    missing = []
    for service in services:
        for method in service.methods:
            name = f"{service.name}/{method.name}"
            rule = _own(name, method) if service in own else _foreign(name)
            if rule is None and name not in _HEALTH:
                missing.append(name)
            found[f"/{service.full_name}/{method.name}"] = rule
    if missing:
        raise NoAccessRuleError(f"no access rule: {', '.join(missing)}")
    return found


def _own(name: str, method: Any) -> AccessRule | None:
    rule = method.GetOptions().Extensions[access_rule_pb2.access]
    if rule.target == access_rule_pb2.CALL_TARGET_UNSPECIFIED:
        return None
    return AccessRule(
        method=name,
        role=Role(rule.role) if rule.role else None,
        target=CallTarget(rule.target),
        field=rule.field,
        steps=rule.steps,
        audited=rule.audited,
        signed=rule.signed,
    )


def _foreign(name: str) -> AccessRule | None:
    """Reflection shows the contract."""
    return None if name in _HEALTH else AccessRule(method=name, role=Role.VIEWER, target=CallTarget.NONE)
