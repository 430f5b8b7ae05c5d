"""The access rules of the contract."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf import descriptor_pb2

from toban.v1 import access_rule_pb2
from toband.api.access_rules import NoAccessRuleError, access_rules
from toband.api.call_limits import ALL_SERVED
from toband.api.interceptor import CallInterceptor
from toband.domain.access_rule import AccessRule, CallTarget
from toband.domain.identity import Role


def test_every_method_that_is_served_has_a_rule_and_health_needs_no_identity() -> None:
    rules = access_rules()
    assert set(rules) == {f"/{service.full_name}/{method.name}" for service in ALL_SERVED for method in service.methods}
    assert {name for name, rule in rules.items() if rule is None} == {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/List",
        "/grpc.health.v1.Health/Watch",
    }


def test_a_rule_is_read_as_the_contract_says() -> None:
    rules = access_rules()
    assert rules["/toban.v1.RunService/StartRun"] == AccessRule(
        method="RunService/StartRun",
        role=Role.OPERATOR,
        target=CallTarget.WORKFLOW,
        field="workflow",
        steps=True,
        audited=True,
    )
    reflection = rules["/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]
    assert reflection is not None
    assert reflection.role is Role.VIEWER


@pytest.mark.parametrize("kind", [Role, CallTarget])
def test_roles_and_targets_are_those_of_the_contract(kind: Any) -> None:
    enum = access_rule_pb2.DESCRIPTOR.enum_types_by_name[kind.__name__]
    prefix = {"Role": "ROLE_", "CallTarget": "CALL_TARGET_"}[kind.__name__]
    assert {each.name: each.number for each in enum.values} == {
        f"{prefix}UNSPECIFIED": 0,
        **{f"{prefix}{each.name}": each.value for each in kind},
    }


def test_a_service_with_a_method_without_a_rule_is_refused() -> None:
    without = SimpleNamespace(name="Fancy", GetOptions=descriptor_pb2.MethodOptions)
    service = SimpleNamespace(name="OtherService", full_name="toban.v1.OtherService", methods=[without])
    with pytest.raises(NoAccessRuleError, match=r"OtherService/Fancy"):
        access_rules([service], own=[service])


async def test_a_method_without_a_rule_is_not_served_even_if_it_is_registered() -> None:
    async def handler(_: object) -> object:
        return SimpleNamespace(response_streaming=False)

    interceptor = CallInterceptor()
    interceptor.open(cast(Any, SimpleNamespace(rules=access_rules())), cast(Any, None))
    unknown = SimpleNamespace(method="/toban.v1.OtherService/Fancy")
    known = SimpleNamespace(method="/toban.v1.RunService/StartRun")
    assert await interceptor.intercept_service(cast(Any, handler), cast(Any, unknown)) is None
    assert await interceptor.intercept_service(cast(Any, handler), cast(Any, known)) is not None
