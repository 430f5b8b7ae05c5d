"""A daemon with a gateway, and a client for each role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from helpers.callers import Caller
from helpers.daemon import Daemon, running_daemon
from helpers.gateway import Gateway, HttpClient, running_gateway
from toban.v1 import access_pb2, access_rule_pb2

ROLES = ("viewer", "operator", "editor", "admin")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running


@pytest.fixture(scope="module")
def gateway(daemon: Daemon) -> Iterator[Gateway]:
    with running_gateway(daemon.socket) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(daemon: Daemon) -> Mapping[str, str]:
    """The text of a token for each role, and of one that is limited to some workflows."""
    admin = Caller(daemon.channel).access
    made = {}
    for role in ROLES:
        number = access_rule_pb2.Role.Value(f"ROLE_{role.upper()}")
        made[role] = admin.CreateToken(access_pb2.CreateTokenRequest(name=role, role=number), timeout=60).text
    limited = access_pb2.CreateTokenRequest(name="limited", role=access_rule_pb2.ROLE_EDITOR)
    limited.narrowing.workflows.append("own-*")
    made["limited"] = admin.CreateToken(limited, timeout=60).text
    return made


@pytest.fixture
def anonymous(gateway: Gateway) -> HttpClient:
    return gateway.client()


@pytest.fixture
def editor(gateway: Gateway, tokens: Mapping[str, str]) -> HttpClient:
    return gateway.client(tokens["editor"])


@pytest.fixture
def viewer(gateway: Gateway, tokens: Mapping[str, str]) -> HttpClient:
    return gateway.client(tokens["viewer"])
