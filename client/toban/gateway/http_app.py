"""The ASGI application: every route of the gateway, and the document that describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from toban.gateway.caller_credential import session_cookie
from toban.gateway.composed_routes import ComposedRoutes
from toban.gateway.console_files import console_file
from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.further_paths import FURTHER
from toban.gateway.hook_routes import HookRoutes
from toban.gateway.issuer_requests import IssuerRequests
from toban.gateway.login_codes import LoginCodes
from toban.gateway.oidc_login import IssuerSettings, OidcLogin
from toban.gateway.open_api import document
from toban.gateway.operation_handler import Endpoint, refusing, serve
from toban.gateway.operations.operation_table import OPERATIONS
from toban.gateway.problem_details import problem
from toban.gateway.project_runs import ProjectRuns
from toban.gateway.request_guard import RequestGuard
from toban.gateway.session_routes import SessionRoutes
from toban.gateway.web_site import WebSite
from toban.sdk.connection import Connection

# Each endpoint decides itself which of them it has.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_REASONS: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """What a gateway is made of. `connection` has the credential of the user who started it."""

    connection: Connection
    site: WebSite
    codes: LoginCodes
    issuer: IssuerSettings | None = None
    issuer_requests: IssuerRequests | None = None
    api_only: bool = False


def http_app(parts: GatewayParts) -> ASGIApp:
    """The application."""
    calls = DaemonCalls(parts.connection)
    cookie = session_cookie(parts.site.port, secure=parts.site.secure)
    composed = ComposedRoutes(calls, cookie)
    projects = ProjectRuns(calls, cookie, composed)
    sessions = SessionRoutes(calls, parts.connection, parts.codes, cookie)
    oidc = OidcLogin(parts.issuer, parts.issuer_requests or IssuerRequests(), sessions, cookie, parts.site)
    endpoints: dict[str, Endpoint] = {
        "logIn": sessions.log_in,
        "getSession": sessions.show,
        "logOut": sessions.log_out,
        "streamRunLogs": composed.logs,
        "downloadRunLog": composed.raw_log,
        "streamChanges": composed.stream,
        "downloadArtifact": composed.download,
        "listApprovals": composed.approvals,
        "diffWorkflowVersions": composed.difference,
        "startProjectRun": projects.start,
        "listProjectRuns": projects.list,
        "getCurrentProjectRun": projects.current,
        "getProjectRun": projects.get,
        "cancelProjectRun": projects.cancel,
        "streamProjectRunLogs": projects.logs,
        "deliverHook": HookRoutes(calls).deliver,
        "listLoginMethods": oidc.methods,
        "beginLogin": oidc.begin,
        "finishLogin": oidc.finish,
        "getOpenApi": _described,
        "getDefinitionSchema": _definition_schema,
    }
    by_path: dict[str, dict[str, Endpoint]] = {}
    for path, methods in FURTHER.items():
        by_path[path] = {name.upper(): refusing(endpoints[each["operationId"]]) for name, each in methods.items()}
    for each in OPERATIONS:
        by_path.setdefault(f"/api{each.path}", {})[each.method] = serve(each, calls, cookie)
    paths = sorted(by_path, key=_fixed_words_first)
    routes = [Route(path, _by_method(by_path[path]), methods=_METHODS) for path in paths]
    routes.append(Route("/api/{path:path}", _unknown, methods=_METHODS))
    if not parts.api_only:
        routes.append(Route("/{path:path}", console_file, methods=_METHODS))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await calls.close()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_problem, Exception: _internal_problem},
    )
    app.router.redirect_slashes = False
    return RequestGuard(app, parts.site)


def _fixed_words_first(path: str) -> list[bool]:
    """The order in which paths are matched: `/events/resolve` is not the event `resolve`."""
    return [part.startswith("{") for part in path.split("/")]


def _by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    """One endpoint for a path, so that a refusal names all of its methods."""

    async def endpoint(request: Request) -> Response:
        if (found := endpoints.get(request.method)) is not None:
            return await found(request)
        allowed = ", ".join(sorted(endpoints))
        answer = problem(405, "METHOD_NOT_ALLOWED", f"this path has {allowed}")
        answer.headers["Allow"] = allowed
        return answer

    return endpoint


async def _described(_: Request) -> Response:
    return JSONResponse(document(OPERATIONS, FURTHER), headers={"Cache-Control": "no-cache"})


async def _definition_schema(_: Request) -> Response:
    from toban.definition.schema.editor_schema import json_schema

    return JSONResponse(json_schema(), headers={"Cache-Control": "max-age=300"})


async def _unknown(_: Request) -> Response:
    return problem(404, "NOT_FOUND", "there is no such path: /api/openapi.json describes all of them")


async def _http_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = problem(error.status_code, _REASONS.get(error.status_code, "REFUSED"), error.detail)
    answer.headers.update(error.headers or {})
    return answer


async def _internal_problem(_: Request, error: Exception) -> Response:
    return problem(500, "INTERNAL", "a fault of the gateway: see its output")
