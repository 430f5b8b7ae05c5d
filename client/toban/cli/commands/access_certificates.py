"""`toban access init|renew`: certificates of a private CA, and a first token."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, Session, quiet_grpc, session, shown
from toban.cli.syntax import CommandContext, Option

if TYPE_CHECKING:
    from toban.certificate_authority import CertificateAuthority, KeyPair

# The CA outlives what it signs.
_CA_DAYS: Final = 3650
_DAYS: Final = 1095
_TOKEN_NAME: Final = "admin"  # noqa: S105 - a name
_CLIENT_NAME: Final = "admin"
_NAMES: Final = ("ca", "server", "client")
_HOST: Final = re.compile(r"[A-Za-z0-9_*]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")

DirOption = Annotated[str, Option("--dir", metavar="DIR", help="Directory of the files.")]
DaysOption = Annotated[
    int,
    Option(
        "--days", min=1, max=_CA_DAYS, metavar="N", help="How long the certificates of server and client are valid."
    ),
]
UserOption = Annotated[
    str,
    Option(
        "--user",
        metavar="USER",
        help="User of the daemon, who gets the server's key; needs root (default: you).",
        show_default=False,
    ),
]


def init(
    ctx: CommandContext,
    directory: DirOption,
    host: Annotated[
        list[str],
        Option("--host", metavar="NAME", help="Name or IP address that clients use; may be repeated."),
    ],
    days: DaysOption = _DAYS,
    user: UserOption = "",
    force: Annotated[bool, Option("--force", help="Replace existing files, the CA too.")] = False,
    output: OutputOption = None,
) -> None:
    """Make a CA, certificates for server and client, and a token.

    It writes ca.crt, ca.key, server.crt, server.key, client.crt and client.key, and prints the lines for the
    configuration of the daemon and the token of its first administrator, which is not shown again. Keep ca.key: it
    signs further certificates. Clients need ca.crt and either the token or client.crt with client.key.

    \b
    Examples:
      toban access init --dir tls --host toban.example.org
      toban access init --dir /etc/toban/tls --host 10.0.0.7 --user toban
    """
    here = session(ctx, output)
    what = "make certificates"
    _check_hosts(host)
    owner = _uid(user, what)
    quiet_grpc()
    found = [each for each in _files(directory) if os.path.lexists(each)]
    if found and not force:
        raise Failure(
            f"cannot {what}: {found[0]} exists",
            Exit.CONFLICT,
            hint="`toban access renew` makes new certificates of the same CA; --force replaces everything",
        )
    ca = _authority(what).create("Toban CA", lifetime=timedelta(days=_CA_DAYS))
    _write_all(directory, {"ca": ca.pair, **_sign(ca, host, days)}, owner, what)
    from toban.token_text import new_token_text

    token = new_token_text()
    config = _config(directory, token.digest)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        written = {"name": _TOKEN_NAME, "id": token.id, "text": token.text}
        emit_data(here, {"files": _files(directory), "token": written, "config": config})
        return
    _report_files(here, _files(directory))
    if here.output is OutputFormat.TABLE:
        from toban.sdk.address import DEFAULT_PORT

        listen = f'"tls://0.0.0.0:{DEFAULT_PORT}"'
        print(f"\nIn the configuration of the daemon, add {listen} to `listen` and these lines to the end:\n\n{config}")
        print(f"The token of {_TOKEN_NAME}, which is not shown again:\n\n{token.text}")


def renew(
    ctx: CommandContext,
    directory: DirOption,
    host: Annotated[
        list[str] | None,
        Option("--host", metavar="NAME", help="Other names of the server (default: those that it has)."),
    ] = None,
    days: DaysOption = _DAYS,
    user: UserOption = "",
    output: OutputOption = None,
) -> None:
    """Make new certificates for server and client, of the same CA.

    Clients that trust the CA need nothing new, and the daemon reads the files when they change, without a restart.
    Tokens are not affected.

    \b
    Examples:
      toban access renew --dir /etc/toban/tls --user toban
      toban access renew --dir tls --host toban.example.org --host 10.0.0.7
    """
    here = session(ctx, output)
    what = "renew the certificates"
    authority = _authority(what)
    from toban.certificate_authority import KeyPair, hosts_of

    try:
        ca = authority(KeyPair(certificate=_read(directory, "ca.crt", what), key=_read(directory, "ca.key", what)))
        hosts = host or hosts_of(_read(directory, "server.crt", what))
    except ValueError as error:
        raise Failure(f"cannot {what}: {directory}: {error}", Exit.USAGE) from None
    _check_hosts(hosts)
    # Its key stays readable to whom it belongs.
    owner = _uid(user, what) if user else _owner(os.path.join(directory, "server.key"))
    _write_all(directory, _sign(ca, hosts, days), owner, what)
    files = _files(directory)[2:]
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, {"files": files})
    else:
        _report_files(here, files)


def _sign(ca: CertificateAuthority, hosts: list[str], days: int) -> dict[str, KeyPair]:
    lifetime = timedelta(days=days)
    return {"server": ca.server(hosts, lifetime=lifetime), "client": ca.client(_CLIENT_NAME, lifetime=lifetime)}


def _authority(what: str) -> type[CertificateAuthority]:
    try:
        from toban.certificate_authority import CertificateAuthority
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise Failure(
            f"cannot {what}: the Python package cryptography is missing", Exit.USAGE, hint="pip install 'toban[daemon]'"
        ) from None
    return CertificateAuthority


def _check_hosts(hosts: Sequence[str]) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host) and not _is_ipv6(host):
            raise Failure(
                f"cannot use --host {shown(host)}: expected a name such as toban.example.org, or an IP address",
                Exit.USAGE,
                hint="without a port, and in ASCII",
            )
    if not hosts:
        raise Failure("cannot make a certificate for no names: --host is missing", Exit.USAGE)


def _is_ipv6(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _files(directory: str) -> list[str]:
    """All files, those of the CA first."""
    return [os.path.join(os.path.abspath(directory), f"{name}.{kind}") for name in _NAMES for kind in ("crt", "key")]


def _config(directory: str, digest: str) -> str:
    where = os.path.abspath(directory)
    return f"""\
[tls]
certificate = {_quoted(os.path.join(where, "server.crt"))}
key = {_quoted(os.path.join(where, "server.key"))}
# To require client certificates, such as client.crt:
# client_ca = {_quoted(os.path.join(where, "ca.crt"))}
# client_certificates = "required"

[access.tokens.{_TOKEN_NAME}]
role = "admin"
digest = "{digest}"

# The role of client.crt:
# [[access.certificates]]
# subject_cn = "{_CLIENT_NAME}"
# role = "admin"
"""


def _quoted(path: str) -> str:
    """As a string of TOML."""
    import json

    return json.dumps(path, ensure_ascii=False)


def _report_files(here: Session, files: Sequence[str]) -> None:
    for each in files:
        print(each if here.output is OutputFormat.NAME else f"wrote {each}")


def _write_all(directory: str, pairs: Mapping[str, KeyPair], owner: int, what: str) -> None:
    """Replaces the files, or none of them. Raises Failure."""
    new: dict[str, str] = {}
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        for name, pair in pairs.items():
            # The key first: the daemon reads the pair again when the certificate changes.
            for kind, content, mode in (("key", pair.key, 0o600), ("crt", pair.certificate, 0o644)):
                path = os.path.join(directory, f"{name}.{kind}")
                new[path] = f"{path}.new"
                _write(new[path], content, mode, owner if (name, kind) == ("server", "key") else -1)
        for path, written in new.items():
            os.replace(written, path)
    except OSError as error:
        raise Failure(f"cannot {what}: {error.filename or directory}: {error.strerror}", Exit.USAGE) from None
    finally:
        for written in new.values():
            with contextlib.suppress(OSError):
                os.unlink(written)


def _write(path: str, content: bytes, mode: int, owner: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        if sys.platform != "win32":
            os.fchmod(file.fileno(), mode)
            if owner >= 0:
                os.fchown(file.fileno(), owner, -1)
        os.fsync(file.fileno())


def _read(directory: str, name: str, what: str) -> bytes:
    path = os.path.join(directory, name)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        hint = "`toban access init` makes a CA" if isinstance(error, FileNotFoundError) else ""
        raise Failure(f"cannot {what}: {path}: {error.strerror}", Exit.USAGE, hint=hint) from None


def _uid(user: str, what: str) -> int:
    """-1: the user who runs this. Raises Failure."""
    if not user:
        return -1
    if sys.platform == "win32":
        raise Failure(f"cannot {what}: --user is not available on Windows", Exit.USAGE)
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise Failure(f"cannot {what}: there is no user {shown(user)}", Exit.USAGE) from None


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1
