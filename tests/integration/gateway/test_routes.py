"""Every route of the gateway for every kind of caller: what is expected is in `route_table.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import pytest

from helpers.daemon import Daemon
from helpers.gateway import WITHIN, Gateway, HttpClient
from toban.gateway.further_paths import FURTHER
from toban.gateway.open_api import document
from toban.gateway.operations.operation_table import OPERATIONS

from .conftest import ROLES
from .route_table import EVERY, JOB, OTHER_PLACES, PLACES, PUBLIC, SOURCE, TABLE, RouteRow

DOCUMENT = document(OPERATIONS, FURTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOfTest:
    id: str
    method: str
    path: str
    statuses: frozenset[int]
    streams: bool


def routes() -> Iterator[RouteOfTest]:
    for path, methods in DOCUMENT["paths"].items():
        for method, described in methods.items():
            kinds = described["responses"].get("200", {}).get("content", {})
            yield RouteOfTest(
                id=described["operationId"],
                method=method.upper(),
                path=path,
                statuses=frozenset(map(int, described["responses"])),
                streams="text/event-stream" in kinds,
            )


ROUTES = {each.id: each for each in routes()}


def test_every_route_has_a_row() -> None:
    assert sorted(ROUTES) == sorted(TABLE)
    assert len(ROUTES) == sum(len(methods) for methods in DOCUMENT["paths"].values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Things:
    """What a route is tried on."""

    workflow: str
    run: str
    process: str

    def put_into(self, text: str) -> str:
        return text.replace("WORKFLOW", self.workflow).replace("RUN", self.run).replace("PROCESS", self.process)


@pytest.fixture
def things(daemon: Daemon, gateway: Gateway, tokens: Mapping[str, str], request: pytest.FixtureRequest) -> Things:
    name = f"of-{request.node.callspec.params['route'].lower()}"
    admin = gateway.client(tokens["admin"])
    assert admin.post("/api/workflows", SOURCE.replace("WORKFLOW", name)).status == 201
    assert admin.post("/api/jobs", JOB.replace("WORKFLOW", name)).status == 201
    run = daemon.run(name).id
    return Things(workflow=name, run=run, process=daemon.processes(run)[0].id)


def ask(client: HttpClient, route: RouteOfTest, row: RouteRow, things: Things) -> tuple[int, str]:
    """The status and, of a refusal, the reason."""
    places = {**PLACES, **OTHER_PLACES.get(route.id, {})}
    path = route.path
    for name, value in places.items():
        path = path.replace(f"{{{name}}}", quote(things.put_into(value)))
    if row.query:
        path += f"?{things.put_into(row.query)}"
    body = json.loads(things.put_into(json.dumps(row.body)))
    if route.streams:
        return status_of_stream(client, path)
    answer = client.send(route.method, path, body, Toban_Request="1")
    return answer.status, answer.reason if answer.status >= 400 else ""


def status_of_stream(client: HttpClient, path: str) -> tuple[int, str]:
    parts = urlsplit(client.url)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=WITHIN)
    try:
        connection.request("GET", path, headers=client.headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())["reason"] if response.status >= 400 else ""
    finally:
        connection.close()


@pytest.mark.parametrize("route", sorted(TABLE))
def test_a_route_is_open_to_its_roles_only(
    gateway: Gateway, tokens: Mapping[str, str], things: Things, route: str
) -> None:
    row, tried = TABLE[route], ROUTES[route]
    callers = {"nobody": "", "unknown": "toban_0123456789abcdef_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", **tokens}
    # Those who may do less come first: what others delete is then still there.
    for name in ("nobody", "unknown", "limited", *ROLES):
        status, reason = ask(gateway.client(callers[name]), tried, row, things)
        assert status in tried.statuses, (name, status, reason)
        assert status < 500, (name, status, reason)
        if row.role == PUBLIC:
            continue
        if name in ("nobody", "unknown"):
            assert status == 401, (name, status, reason)
        elif name == "limited":
            check_limited(row, status, reason)
        elif row.role != EVERY and ROLES.index(name) < ROLES.index(row.role):
            assert (status, reason) == (403, "ROLE_REQUIRED"), name
        else:
            assert status not in (401, 403), (name, status, reason)


def check_limited(row: RouteRow, status: int, reason: str) -> None:
    """Of a caller with the role editor that is limited to other workflows."""
    if row.role == "admin":
        assert (status, reason) == (403, "ROLE_REQUIRED")
    elif row.limited == "no":
        assert (status, reason) == (403, "WORKFLOW_NOT_PERMITTED") or status == 404
    else:
        assert status not in (401, 403)


def test_a_limited_caller_sees_its_own_only(daemon: Daemon, gateway: Gateway, tokens: Mapping[str, str]) -> None:
    for name in ("own-1", "other-1"):
        daemon.apply(SOURCE.replace("WORKFLOW", name))
        daemon.run(name)
    limited = gateway.client(tokens["limited"])
    assert {each["name"] for each in limited.get("/api/workflows").data["workflows"]} == {"own-1"}
    assert {each["workflow"] for each in limited.get("/api/workflow_runs").data["runs"]} == {"own-1"}
    assert limited.get("/api/overview").data["workflow_count"] == 1
