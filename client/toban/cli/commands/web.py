"""`toban web`: serves the console and the HTTP API of a daemon."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.session import complain, quiet_grpc, session, shown
from toban.cli.syntax import CommandContext, Option

if TYPE_CHECKING:
    from toban.gateway.oidc_login import IssuerSettings
    from toban.gateway.web_server import WebServer, WebSettings
    from toban.sdk.endpoint import Endpoint

NEEDED: Final = ("starlette", "uvicorn")
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_ADDRESS: Final = "127.0.0.1:7280"


def web(
    ctx: CommandContext,
    listen: Annotated[
        str, Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 picks a free one.")
    ] = DEFAULT_ADDRESS,
    tls_certificate: Annotated[
        str,
        Option("--tls-certificate", metavar="FILE", help="Speak TLS with this certificate.", show_default=False),
    ] = "",
    tls_key: Annotated[str, Option("--tls-key", metavar="FILE", help="Its key.", show_default=False)] = "",
    public_url: Annotated[
        str,
        Option(
            "--public-url",
            metavar="URL",
            help="Where people reach it, if not at --listen: a proxy with TLS, or a host name.",
            show_default=False,
        ),
    ] = "",
    issuer: Annotated[
        str,
        Option(
            "--issuer",
            metavar="URL",
            help="Let people log in with accounts of this OIDC issuer, which [[access.issuers]] of the daemon names.",
            show_default=False,
        ),
    ] = "",
    client_id: Annotated[
        str,
        Option("--client-id", metavar="ID", help="The client that it knows this as: its audience.", show_default=False),
    ] = "",
    client_secret_file: Annotated[
        str,
        Option("--client-secret-file", metavar="FILE", help="The secret of the client, if any.", show_default=False),
    ] = "",
    issuer_ca: Annotated[
        str, Option("--issuer-ca", metavar="FILE", help="Certificates to trust for it.", show_default=False)
    ] = "",
    api_only: Annotated[bool, Option("--api-only", help="Serve the HTTP API without the console.")] = False,
    open_: Annotated[bool, Option("--open", help="Open the console in a browser.")] = False,
    no_build: Annotated[
        bool, Option("--no-build", help="In a working copy: do not build the console if its sources have changed.")
    ] = False,
    no_link: Annotated[bool, Option("--no-link", help="Print no login link: people log in with a token.")] = False,
) -> None:
    """Serve the console and the HTTP API of a daemon.

    It prints a link that logs your browser in as you, once, within 60 seconds; Enter prints another one. Every other
    request needs a token of the daemon.

    \b
    Examples:
      toban web --open
      toban web --listen 127.0.0.1:0 --api-only
      toban web --public-url https://toban.example.org
    """
    here = session(ctx)
    check_web_installed("serve the console")
    quiet_grpc()
    from toban.gateway.web_server import WebServer, WebSettings
    from toban.sdk.credentials import ClientCredentials
    from toban.sdk.endpoint import resolve

    host, port = _address(listen)
    _check(host, tls_certificate, tls_key, public_url)
    account_issuer = _issuer(issuer, client_id, client_secret_file)
    settings = WebSettings(
        host=host,
        port=port,
        certificate=tls_certificate,
        key=tls_key,
        public_url=public_url,
        api_only=api_only,
        issuer=account_issuer,
        issuer_ca=issuer_ca,
    )
    given = ClientCredentials(
        token_file=here.token_file or "", ca=here.ca or b"", certificate=here.certificate or b"", key=here.key or b""
    )
    with doing("serve the console"):
        endpoint = resolve(here.server, here.context, given=given)
    server = _listening(WebServer, settings, endpoint)
    if not api_only:
        _prepare_console(build=not no_build)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(lambda: _announce(server, link=not no_link, browser=open_, quiet=here.quiet))


def check_web_installed(what: str) -> None:
    """Raises Failure if the extra is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(
            f"cannot {what}: {', '.join(missing)} is not installed", Exit.USAGE, hint="pip install 'toban[web]'"
        )


def _prepare_console(*, build: bool) -> None:
    """Builds the console of a checkout, once after each change of its sources; says so if there is none."""
    from toban.gateway.console_checkout import build_console, has_console

    if not (build_console() if build else has_console()):
        complain("toban: warning: the console is not built, and only the HTTP API is served: scripts/build-console")


def _listening(kind: type[WebServer], settings: WebSettings, endpoint: Endpoint) -> WebServer:
    try:
        return kind(settings, endpoint)
    except OSError as error:
        # An ssl.SSLError is one, too.
        place = f"{settings.host}:{settings.port}"
        raise Failure(f"cannot listen on {place}: {error.strerror or error}", Exit.USAGE) from None


def _address(text: str) -> tuple[str, int]:
    host, sign, port = text.rpartition(":")
    host = host.strip("[]")
    if not sign or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise Failure(
            f"cannot listen on {shown(text)}: expected HOST:PORT", Exit.USAGE, hint=f"such as {DEFAULT_ADDRESS}"
        )
    return host, int(port)


def _check(host: str, certificate: str, key: str, public_url: str) -> None:
    """Raises Failure for an address that would send credentials in the clear, or that no browser could use."""
    if bool(certificate) != bool(key):
        raise Failure("cannot speak TLS: it takes both --tls-certificate and --tls-key", Exit.USAGE)
    if public_url:
        parts = urlsplit(public_url)
        plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not (parts.scheme == "https" or plain) or not parts.netloc or parts.path.strip("/") or parts.query:
            raise Failure(f"cannot use --public-url {shown(public_url)}: expected https://HOST", Exit.USAGE)
    if host in _LOOPBACK:
        return
    if not certificate:
        raise Failure(
            f"cannot listen on {shown(host)}: without TLS only 127.0.0.1 and ::1 are allowed",
            Exit.USAGE,
            hint="give --tls-certificate and --tls-key, or put a proxy with TLS before it (--public-url)",
        )
    if not public_url:
        raise Failure(
            f"cannot listen on {shown(host)}: people reach it by a name",
            Exit.USAGE,
            hint="give it as --public-url https://HOST:PORT",
        )


def _issuer(url: str, client_id: str, secret_file: str) -> IssuerSettings | None:
    """Raises Failure."""
    from toban.gateway.issuer_requests import IssuerError, check_issuer_url
    from toban.gateway.oidc_login import IssuerSettings
    from toban.sdk.credentials import read_token_file

    if bool(url) != bool(client_id):
        raise Failure("cannot let people log in with an issuer: it takes both --issuer and --client-id", Exit.USAGE)
    if not url:
        return None
    try:
        check_issuer_url(url)
    except IssuerError as error:
        raise Failure(f"cannot use --issuer {shown(url)}: {error}", Exit.USAGE) from None
    with doing("use --client-secret-file"):
        secret = read_token_file(secret_file) if secret_file else ""
    return IssuerSettings(issuer=url, client_id=client_id, secret=secret)


def _announce(server: WebServer, *, link: bool, browser: bool, quiet: bool) -> None:
    print(server.site.url, flush=True)
    if not link:
        return
    complain(f"toban: log in within 60 s, once: {login_link(server)}")
    if browser:
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(login_link(server),), daemon=True).start()
    if sys.stdin is not None and sys.stdin.isatty():
        if not quiet:
            complain("       Enter prints another link; Ctrl-C stops")
        threading.Thread(target=_further_links, args=(server,), daemon=True).start()


def login_link(server: WebServer) -> str:
    """With a new code. A fragment is in no log: browsers do not send it."""
    return f"{server.site.url}/login#code={server.codes.new()}"


def _further_links(server: WebServer) -> None:
    for _ in sys.stdin:
        complain(f"toban: log in within 60 s, once: {login_link(server)}")
