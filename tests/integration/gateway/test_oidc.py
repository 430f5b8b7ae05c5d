"""Logging in with an account of an issuer of our own, through a real daemon that trusts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from doubles.login_issuer import CLIENT, SECRET, LoginIssuer, serving_issuer
from helpers.daemon import Daemon, running_daemon
from helpers.gateway import Answer, Gateway, HttpClient, running_gateway


@pytest.fixture(scope="module")
def issuer() -> Iterator[LoginIssuer]:
    with serving_issuer() as serving:
        yield serving


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, issuer: LoginIssuer) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("d")
    config = directory / "toband.toml"
    config.write_text(
        f"""
        [[access.issuers]]
        name = "ours"
        issuer = "{issuer.url}"
        audience = "{CLIENT}"
        jwks_url = "{issuer.url}/keys"
        rules = [{{ claims = {{ groups = "ops" }}, role = "operator" }}]
        """
    )
    with running_daemon(directory / "s", "--config", str(config)) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(daemon: Daemon, issuer: LoginIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    secret = tmp_path_factory.mktemp("g") / "secret"
    secret.write_text(f"{SECRET}\n")
    words = ("--issuer", issuer.url, "--client-id", CLIENT, "--client-secret-file", str(secret))
    with running_gateway(daemon.socket, "--no-link", *words) as running:
        yield running


@pytest.fixture(autouse=True)
def forgetful(issuer: LoginIssuer) -> None:
    issuer.claims.clear()


def followed(answer: Answer, cookies: dict[str, str]) -> str:
    """Where a browser goes, with the cookies that it has then."""
    assert answer.status in (302, 303)
    if (given := answer.headers.get("set-cookie", "")) and "Max-Age=0" not in given:
        name, _, value = given.partition(";")[0].partition("=")
        cookies[name] = value
    return answer.headers["location"]


def at_issuer(gateway: Gateway, cookies: dict[str, str]) -> str:
    """Begins a login, and logs in there; the address that the issuer sends the browser back to."""
    there = urlsplit(followed(gateway.client().get("/api/login/oidc"), cookies))
    back = followed(HttpClient(f"http://{there.netloc}").get(f"{there.path}?{there.query}"), {})
    assert back.startswith(f"{gateway.url}/api/login/oidc/callback?")
    return back.removeprefix(gateway.url)


def visit(gateway: Gateway, path: str, cookies: dict[str, str]) -> Answer:
    return gateway.client().get(path, Cookie="; ".join(f"{name}={value}" for name, value in cookies.items()))


def failure(answer: Answer) -> str:
    assert answer.status == 303
    assert "set-cookie" not in answer.headers
    place, _, error = answer.headers["location"].partition("#error=")
    assert place == "/login"
    return unquote(error)


def test_an_account_of_the_issuer_becomes_a_session(gateway: Gateway, issuer: LoginIssuer) -> None:
    assert gateway.client().get("/api/login").data["issuers"] == [
        {"name": urlsplit(issuer.url).netloc, "url": "/api/login/oidc"}
    ]
    cookies: dict[str, str] = {}
    back = at_issuer(gateway, cookies)
    arrived = gateway.client().get(back, Cookie="; ".join(f"{name}={value}" for name, value in cookies.items()))
    assert (arrived.status, arrived.headers["location"]) == (303, "/")
    cookie = next(each for each in arrived.headers["set-cookie"].split(", ") if "toban_" in each).partition(";")[0]
    who = gateway.client().get("/api/session", Cookie=cookie).data["identity"]
    assert (who["name"], who["kind"], who["role"]) == ("ours:aiko", "issuer", "operator")
    assert who["session_id"]
    assert issuer.redeemed[-1]["code_verifier"]
    # The state of a login is used up.
    assert "expired" in failure(visit(gateway, back, cookies))


def test_a_login_belongs_to_the_browser_that_began_it(gateway: Gateway) -> None:
    mine: dict[str, str] = {}
    back = at_issuer(gateway, mine)
    assert "begun elsewhere" in failure(visit(gateway, back, {}))
    theirs: dict[str, str] = {}
    at_issuer(gateway, theirs)
    back = at_issuer(gateway, mine)
    assert "begun elsewhere" in failure(visit(gateway, back, theirs))


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"nonce": "other"}, "another login"),
        ({"groups": ["others"]}, "credential"),
        ({"aud": "another"}, "credential"),
        ({"exp": 1}, "credential"),
    ],
)
def test_a_token_that_proves_nothing_logs_nobody_in(
    gateway: Gateway, issuer: LoginIssuer, claims: dict[str, object], told: str
) -> None:
    cookies: dict[str, str] = {}
    back = at_issuer(gateway, cookies)
    issuer.claims.update(claims)
    assert told in failure(visit(gateway, back, cookies))


def test_what_the_issuer_refuses_is_shown(gateway: Gateway) -> None:
    cookies: dict[str, str] = {}
    back = at_issuer(gateway, cookies)
    (state,) = parse_qs(urlsplit(back).query)["state"]
    path = urlsplit(back).path
    denied = visit(gateway, f"{path}?state={state}&error=access_denied&error_description=%3Cb%3Eno", cookies)
    assert failure(denied) == "<b>no"
    cookies = {}
    (state,) = parse_qs(urlsplit(at_issuer(gateway, cookies)).query)["state"]
    assert "the code is not valid" in failure(visit(gateway, f"{path}?state={state}&code=guessed", cookies))


def test_without_an_issuer_there_is_no_such_login(daemon: Daemon, tmp_path: Path) -> None:
    with running_gateway(daemon.socket, "--no-link", directory=tmp_path) as plain:
        assert plain.client().get("/api/login").data["issuers"] == []
        assert failure(plain.client().get("/api/login/oidc")) == "no issuer is configured"
