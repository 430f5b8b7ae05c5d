"""Logging in and out of the gateway, and requests that others have a browser make."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helpers import certificates
from helpers.daemon import Daemon
from helpers.gateway import Answer, Gateway, HttpClient, running_gateway
from toban.gateway.login_codes import LIFETIME, LoginCodes

OWN = {"Toban_Request": "1"}


def cookie_of(answer: Answer) -> str:
    """The cookie that a browser would send from now on."""
    attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(attributes)
    return attributes[0]


def logged_in(gateway: Gateway, token: str) -> HttpClient:
    client = gateway.client()
    client.headers["Cookie"] = cookie_of(client.post("/api/session", {"token": token}, **OWN))
    return client


def test_the_code_of_the_link_is_exchanged_once_for_a_session_of_the_user_who_started_it(daemon: Daemon) -> None:
    with running_gateway(daemon.socket) as gateway:
        client = gateway.client()
        body = {"code": gateway.code()}
        first = client.post("/api/session", body, **OWN)
        assert first.status == 201
        assert first.data["identity"]["kind"] == "user"
        assert first.data["identity"]["session_id"]
        again = client.post("/api/session", body, **OWN)
        assert (again.status, again.reason) == (401, "CODE_INVALID")
        client.headers["Cookie"] = cookie_of(first)
        assert client.get("/api/session").data == first.data
        assert client.get("/api/workflows").status == 200


def test_a_code_expires() -> None:
    now = 100.0
    codes = LoginCodes(lambda: now)
    late, early = codes.new(), codes.new()
    now += LIFETIME - 0.1
    assert codes.take(early)
    now += 0.2
    assert not codes.take(late)
    assert not codes.take("never made")


def test_a_token_is_exchanged_for_a_session_which_logging_out_ends(gateway: Gateway, tokens: Mapping[str, str]) -> None:
    client = logged_in(gateway, tokens["operator"])
    assert client.headers["Cookie"].startswith(f"toban-{urlsplit(gateway.url).port}=toban_")
    assert tokens["operator"] not in client.headers["Cookie"]
    assert client.get("/api/session").data["identity"]["name"] == "token:operator"
    ended = client.send("DELETE", "/api/session", **OWN)
    assert ended.status == 204
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert (client.get("/api/session").status, client.get("/api/session").reason) == (401, "CREDENTIAL_REVOKED")
    # The token itself was not revoked.
    assert gateway.client(tokens["operator"]).get("/api/session").status == 200


def test_a_session_that_is_pasted_is_taken_as_it_is(gateway: Gateway, tokens: Mapping[str, str]) -> None:
    first = logged_in(gateway, tokens["viewer"])
    text = first.headers["Cookie"].partition("=")[2]
    assert logged_in(gateway, text).headers == first.headers


@pytest.mark.parametrize("text", ["", "x", "toban_0123456789abcdef_x", "a b", "é", "\n"])
def test_another_text_is_no_login(anonymous: HttpClient, text: str) -> None:
    answer = anonymous.post("/api/session", {"token": text}, **OWN)
    assert answer.status in (401, 422)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}, {"Cookie": "toban=x; other=y"}]
)
def test_without_a_credential_there_is_nothing_but_the_description(
    anonymous: HttpClient, headers: dict[str, str]
) -> None:
    assert anonymous.get("/api/openapi.json", **headers).status == 200
    for path in ("/api/session", "/api/workflows", "/api/system", "/api/stream", "/api/workflow_runs/x/logs"):
        answer = anonymous.get(path, **headers)
        assert answer.status == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_page_of_another_site_can_make_a_browser_change_nothing(gateway: Gateway, tokens: Mapping[str, str]) -> None:
    client = logged_in(gateway, tokens["admin"])
    assert client.post("/api/system/drain").reason == "CROSS_SITE_REQUEST"
    for site in ("cross-site", "same-site"):
        for refused in (
            client.post("/api/system/drain", **OWN, Sec_Fetch_Site=site),
            client.get("/api/workflows", Sec_Fetch_Site=site),
        ):
            assert (refused.status, refused.reason) == (403, "CROSS_SITE_REQUEST")
    origin = client.post("/api/system/drain", **OWN, Origin="http://127.0.0.1:1")
    assert (origin.status, origin.reason) == (403, "ORIGIN_NOT_ALLOWED")
    assert not client.get("/api/system").data["draining"]
    assert client.post("/api/system/resume", **OWN, Origin=gateway.url, Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example", ""])
def test_a_name_that_is_not_ours_is_refused(gateway: Gateway, host: str) -> None:
    answer = gateway.client().get("/", Host=host)
    assert (answer.status, answer.reason) == (421, "HOST_NOT_ALLOWED")


def test_every_answer_forbids_what_is_not_needed(gateway: Gateway, viewer: HttpClient) -> None:
    for path in ("/", "/api/workflows", "/api/nothing", "/runs/1"):
        headers = viewer.get(path).headers
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control-")]
    assert viewer.send("OPTIONS", "/api/workflows", Origin=gateway.url).status == 405


def test_over_tls_the_cookie_is_for_this_host_alone(daemon: Daemon, tokens: Mapping[str, str], tmp_path: Path) -> None:
    ca = certificates.authority()
    stored = certificates.store(certificates.server(ca), tmp_path)
    words = ("--tls-certificate", str(stored.certificate), "--tls-key", str(stored.key), "--no-link")
    with running_gateway(daemon.socket, *words) as gateway:
        parts = urlsplit(gateway.url)
        assert (parts.scheme, parts.hostname) == ("https", "127.0.0.1")
        context = ssl.create_default_context(cadata=ca.pair.certificate.decode())
        connection = HTTPSConnection("127.0.0.1", parts.port, context=context, timeout=60)
        body = json.dumps({"token": tokens["viewer"]})
        headers = {"Toban-Request": "1", "Content-Type": "application/json", "Origin": gateway.url}
        connection.request("POST", "/api/session", body, headers)
        answer = connection.getresponse()
        assert answer.status == 201
        answer.read()
        cookie = answer.getheader("set-cookie", "")
        assert cookie.startswith(f"__Host-toban-{parts.port}=toban_")
        assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert answer.getheader("strict-transport-security", "").startswith("max-age=")
        connection.request("GET", "/api/session", headers={"Cookie": cookie.partition(";")[0]})
        assert connection.getresponse().status == 200
        connection.close()
