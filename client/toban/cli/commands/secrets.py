"""`toban secrets`: stores secrets, and grants them to workflows. Values are written, never shown."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import secret_names, workflow_names
from toban.cli.args.name_arguments import connect
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.human_text import clock
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, fields, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, complain, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.limits import MAX_SECRET_BYTES

if TYPE_CHECKING:
    from toban.v1 import secret_pb2

app = Group(
    name="secrets",
    help="""Store secrets, and grant them to workflows.

    A definition uses one as `{{ secrets.NAME }}` in env, stdin and secret_files. No command shows a value.

    \b
    Examples:
      toban secrets set db_password --workflows 'nightly-*'
      toban secrets grant db_password report
      toban secrets list
    """,
)

NameArgument = Annotated[
    str,
    Argument(metavar="NAME", help="Name of the secret.", show_default=False, autocompletion=secret_names),
]
NamesArgument = Annotated[
    list[str],
    Argument(metavar="NAME", help="Names of secrets.", show_default=False, autocompletion=secret_names),
]
PatternsArgument = Annotated[
    list[str],
    Argument(
        metavar="WORKFLOW",
        help="Names of workflows, or patterns such as 'nightly-*'.",
        show_default=False,
        autocompletion=workflow_names,
    ),
]


@app.command("set")
def set_secret(
    ctx: CommandContext,
    name: NameArgument,
    workflows: Annotated[
        list[str] | None,
        Option(
            "--workflows",
            metavar="PATTERN",
            help="Workflows that may use it: a name, or a pattern such as 'nightly-*'; may be repeated.",
            show_default=False,
            autocompletion=workflow_names,
        ),
    ] = None,
    file: Annotated[
        str,
        Option("--file", metavar="FILE", help="Read the value from a file.", show_default=False),
    ] = "",
    keep_newline: Annotated[
        bool, Option("--keep-newline", help="Keep a newline at the end of the value; by default one is removed.")
    ] = False,
    provider: Annotated[
        str,
        Option(
            "--provider",
            metavar="PROVIDER",
            help="Store no value: steps get it from this provider of the daemon's configuration, or from `credential`.",
            show_default=False,
        ),
    ] = "",
    key: Annotated[
        str,
        Option("--provider-key", metavar="KEY", help="Its key at the provider; default: the name.", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Create a secret, or give it another value.

    The value is read from standard input; on a terminal, it is asked for twice, without echo. It has 6 characters to
    64 KiB: a shorter one could not be masked in logs. Workflows keep the grants that they have.

    \b
    Examples:
      toban secrets set db_password --workflows 'nightly-*'
      pass show db | toban secrets set db_password
      toban secrets set tls_key --file server.key --keep-newline
      toban secrets set api_token --provider vault --provider-key secret/api
    """
    here = session(ctx, output)
    what = f"set secret {shown(name)}"
    granted = workflows or []
    if provider:
        if file or keep_newline:
            raise Failure(f"cannot {what}: with --provider the daemon stores no value", Exit.USAGE)
        with connect(here, what) as client:
            secret = client.set_provided_secret(name, provider, key, workflows=granted)
    else:
        if key:
            raise Failure(f"cannot {what}: --provider-key needs --provider", Exit.USAGE)
        value = _read_value(file, what, keep_newline=keep_newline)
        with connect(here, what) as client:
            secret = client.set_secret(name, value, workflows=granted)
    _changed(here, secret, "created" if secret.version == 1 else f"set version {secret.version} of")
    if not secret.workflows:
        here.note(f"hint: no workflow may use it yet: `toban secrets grant {name} WORKFLOW`")


@app.command("list")
def list_secrets(ctx: CommandContext, limit: LimitOption = 200, output: OutputOption = None) -> None:
    """List secrets by name, without their values.

    \b
    Examples:
      toban secrets list
      toban secrets list -o json
    """
    here = session(ctx, output)
    with connect(here, "list secrets") as client:
        found, more = take(client.list_secrets(page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[secret_pb2.Secret]] = [
        Column("NAME", lambda secret: secret.name, lambda _: "bold"),
        Column("VERSION", lambda secret: str(secret.version)),
        Column("WORKFLOWS", lambda secret: ", ".join(secret.workflows) or "none", folds=True),
        Column("PROVIDER", lambda secret: secret.provider, optional=True),
        time_column("UPDATED", lambda secret: secret.updated_at, optional=True),
        time_column("LAST USED", lambda secret: secret.last_used_at, optional=True),
        Column("READABLE", lambda secret: "no" if secret.unreadable else "yes", lambda secret: _readable_style(secret)),
    ]
    for problem in {secret.unreadable for secret in found if secret.unreadable}:
        complain(f"toban: warning: values cannot be read: {problem}")
    emit_list(here, found, columns, name=lambda secret: str(secret.name), more=more, empty="no secrets")


def _readable_style(secret: secret_pb2.Secret) -> str:
    return "red" if secret.unreadable else ""


@app.command()
def show(ctx: CommandContext, name: NameArgument, output: OutputOption = None) -> None:
    """Show a secret: its version, its grants and its last use.

    The value is not shown.

    \b
    Example:
      toban secrets show db_password
    """
    here = session(ctx, output)
    with connect(here, f"show secret {shown(name)}") as client:
        found = client.get_secret(name)
    emit_one(here, found, name=found.name, show=lambda: _show(here, found))


@app.command()
def grant(ctx: CommandContext, name: NameArgument, workflows: PatternsArgument, output: OutputOption = None) -> None:
    """Let workflows use a secret.

    \b
    Examples:
      toban secrets grant db_password report
      toban secrets grant db_password 'nightly-*' 'import-*'
    """
    here = session(ctx, output)
    with connect(here, f"grant secret {shown(name)}") as client:
        secret = client.grant_secret(name, workflows)
    _changed(here, secret, "granted")


@app.command()
def revoke(ctx: CommandContext, name: NameArgument, workflows: PatternsArgument, output: OutputOption = None) -> None:
    """Revoke grants of a secret.

    Patterns are those that were granted. Steps that run keep the value that they have.

    \b
    Example:
      toban secrets revoke db_password 'nightly-*'
    """
    here = session(ctx, output)
    with connect(here, f"revoke grants of secret {shown(name)}") as client:
        before = client.get_secret(name).workflows
        secret = client.revoke_secret_grant(name, workflows)
    _changed(here, secret, "revoked grants of")
    if missing := [each for each in workflows if each not in before]:
        here.note(f"note: {', '.join(map(shown, missing))} had no grant")


@app.command()
def delete(ctx: CommandContext, names: NamesArgument, output: OutputOption = None) -> None:
    """Delete secrets with their values and grants.

    Steps that use them fail from then on.

    \b
    Example:
      toban secrets delete db_password
    """
    here = session(ctx, output)
    with connect(here, "delete secrets") as client:
        for name in names:
            with doing(f"delete secret {shown(name)}"):
                client.delete_secret(name)
            if here.output is OutputFormat.TABLE:
                print(f"deleted {shown(name)}", flush=True)
            elif here.output is OutputFormat.NAME:
                print(name, flush=True)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [{"name": name, "outcome": "deleted"} for name in names])


@app.command("rotate-key")
def rotate_key(ctx: CommandContext, output: OutputOption = None) -> None:
    """Encrypt all secrets with a new key.

    The new key replaces the old one in the daemon's key file. If the file has another key in front of the one in use,
    the daemon takes that key: use this to replace a key that it cannot write, such as a systemd credential.

    \b
    Example:
      toban secrets rotate-key
    """
    here = session(ctx, output)
    with connect(here, "rotate the secrets key") as client:
        answer = client.rotate_secrets_key()

    def show_answer() -> None:
        count = "1 secret" if answer.secrets == 1 else f"{answer.secrets} secrets"
        print(f"encrypted {count} with the new key {answer.key_id}")
        here.note(f"hint: back up {answer.key_file}: earlier copies no longer decrypt the database")

    emit_one(here, answer, name=answer.key_id, show=show_answer)


def _read_value(file: str, what: str, *, keep_newline: bool) -> str:
    """The value from a file, from standard input or from a prompt. Raises Failure."""
    if not file and sys.stdin.isatty():
        return _asked(what)
    try:
        if file:
            with open(file, "rb") as opened:
                data = opened.read(MAX_SECRET_BYTES + 3)
        else:
            data = sys.stdin.buffer.read(MAX_SECRET_BYTES + 3)
    except OSError as error:
        raise Failure(
            f"cannot {what}: cannot read {shown(file or 'standard input')}: {error.strerror}", Exit.USAGE
        ) from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        message = f"cannot {what}: the value is not UTF-8 text: encode it, as with base64, and decode it in the step"
        raise Failure(message, Exit.USAGE) from None
    if not keep_newline and text.endswith("\n"):
        text = text.removesuffix("\n").removesuffix("\r")
    return text


def _asked(what: str) -> str:
    try:
        value = getpass.getpass("value: ")
        again = getpass.getpass("again: ")
    except EOFError:
        raise Failure(f"cannot {what}: no value was given", Exit.USAGE) from None
    if value != again:
        raise Failure(f"cannot {what}: the two values differ", Exit.USAGE)
    return value


def _changed(here: Session, secret: secret_pb2.Secret, done: str) -> None:
    allowed = ", ".join(secret.workflows) or "no workflow"
    emit_one(here, secret, name=secret.name, show=lambda: print(f"{done} {shown(secret.name)} (for {allowed})"))


def _show(here: Session, secret: secret_pb2.Secret) -> None:
    place = f"provider {secret.provider}, key {secret.provider_key or secret.name}" if secret.provider else "encrypted"
    used = clock(secret.last_used_at, absent="never")
    fields(
        here,
        [
            ("secret", secret.name),
            ("version", str(secret.version)),
            ("value", place),
            ("workflows", ", ".join(secret.workflows) or "none"),
            ("created", f"{clock(secret.created_at)} by {secret.created_by}"),
            ("updated", f"{clock(secret.updated_at)} by {secret.updated_by}"),
            ("last used", f"{used} by {secret.last_used_by}" if secret.last_used_by else used),
        ],
    )
