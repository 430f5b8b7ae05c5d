"""`toban hooks`: lets signed deliveries of other systems start workflows and emit events."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import hook_names, secret_names, workflow_names
from toban.cli.args.name_arguments import connect
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.human_text import clock
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, fields, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.v1 import hook_pb2

app = Group(
    name="hooks",
    help="""Let deliveries of other systems start workflows.

    A hook takes signed deliveries (webhooks) at /hooks/NAME of `toban web`, or by DeliverHook.

    \b
    Examples:
      toban hooks create deploy --workflow deploy --param ref=body.ref
      toban hooks list
      toban hooks delete deploy
    """,
)


class SignedForm(StrEnum):
    """How deliveries are signed."""

    GITHUB = "github"
    HMAC = "hmac"


NameArgument = Annotated[
    str,
    Argument(metavar="NAME", help="Name of the hook.", show_default=False, autocompletion=hook_names),
]
NamesArgument = Annotated[
    list[str],
    Argument(metavar="NAME", help="Names of hooks.", show_default=False, autocompletion=hook_names),
]


@app.command()
def create(
    ctx: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the hook, a part of its URL.", show_default=False)],
    workflow: Annotated[
        str,
        Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="The workflow to start.",
            show_default=False,
            autocompletion=workflow_names,
        ),
    ] = "",
    event: Annotated[
        str,
        Option("--event", metavar="TYPE", help="Instead of --workflow: the type of event to emit.", show_default=False),
    ] = "",
    form: Annotated[
        SignedForm,
        Option("--form", metavar="FORM", help="How deliveries are signed: github, or hmac with a timestamp."),
    ] = SignedForm.GITHUB,
    secret: Annotated[
        str,
        Option(
            "--secret",
            metavar="NAME",
            help="A stored secret that signs deliveries; without it, a new secret is printed for the only time.",
            show_default=False,
            autocompletion=secret_names,
        ),
    ] = "",
    param: Annotated[
        list[str] | None,
        Option(
            "--param",
            "-p",
            metavar="NAME=PATH",
            help="A parameter, or a field of the event, and where the delivery has it; may be repeated.",
        ),
    ] = None,
    condition: Annotated[
        list[str] | None,
        Option("--if", metavar="PATH=VALUE", help="Ignore deliveries with another value there; may be repeated."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Create a hook, and print its secret for the only time.

    A path begins with body or headers: body.pull_request.number, body.commits[0].id, headers["x-github-event"]. Where
    it leads nowhere, the parameter is left out. The steps of the run find the whole delivery in event.payload.

    \b
    Examples:
      toban hooks create deploy --workflow deploy --param ref=body.ref
      toban hooks create main -w deploy --if body.ref=refs/heads/main
      toban hooks create issues --event ISSUE --if headers.x-github-event=issues
      toban hooks create shop --form hmac --event PAID --param id=body.order
      toban hooks create signed -w deploy --secret github_secret
    """
    from toban.v1 import hook_pb2

    here = session(ctx, output)
    what = f"create hook {shown(name)}"
    if bool(workflow) == bool(event):
        raise Failure(f"cannot {what}: give either --workflow or --event", Exit.USAGE)
    params = _params(param or [], what)
    number = hook_pb2.HookForm.Value(f"HOOK_FORM_{form.name}")
    with connect(here, what) as client:
        made = client.create_hook(
            name,
            workflow=workflow,
            event_type=event,
            form=number,
            secret=secret,
            params=params,
            conditions=condition or (),
        )
    _report(here, made)


def _params(given: Sequence[str], what: str) -> dict[str, str]:
    """Raises Failure."""
    params = {}
    for text in given:
        key, equals, path = text.partition("=")
        if not key or not equals or not path:
            raise Failure(f"cannot {what}: the parameter {shown(text)!r} is not NAME=PATH", Exit.USAGE)
        params[key] = path
    return params


def _report(here: Session, made: hook_pb2.CreateHookResponse) -> None:
    hook = made.hook
    match here.output:
        case OutputFormat.TABLE:
            print(made.secret_value or hook.name, flush=True)
        case OutputFormat.NAME:
            print(hook.name)
        case _:
            emit_data(here, to_dict(made))
    kept = "; its secret is not shown again" if made.secret_value else f", signed with the secret {hook.secret}"
    here.note(f"created hook {hook.name}, which {_does(hook)}, for POST /hooks/{hook.name} of `toban web`{kept}")


@app.command("list")
def list_hooks(ctx: CommandContext, limit: LimitOption = 200, output: OutputOption = None) -> None:
    """List hooks by name, without their secrets.

    \b
    Examples:
      toban hooks list
      toban hooks list -o json
    """
    here = session(ctx, output)
    with connect(here, "list hooks") as client:
        found, more = take(client.list_hooks(page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[hook_pb2.Hook]] = [
        Column("NAME", lambda hook: hook.name, lambda _: "bold"),
        Column("WORKFLOW", lambda hook: hook.workflow or "-"),
        Column("EVENT", lambda hook: hook.event_type),
        Column("FORM", _form),
        Column("SECRET", lambda hook: hook.secret or "its own"),
        time_column("CREATED", lambda hook: hook.created_at, optional=True),
    ]
    emit_list(here, found, columns, name=lambda hook: str(hook.name), more=more, empty="no hooks")


@app.command()
def show(ctx: CommandContext, name: NameArgument, output: OutputOption = None) -> None:
    """Show a hook: what it starts, and with which parameters.

    The secret is not shown.

    \b
    Example:
      toban hooks show deploy
    """
    here = session(ctx, output)
    with connect(here, f"show hook {shown(name)}") as client:
        found = client.get_hook(name)
    emit_one(here, found, name=found.name, show=lambda: _show(here, found))


@app.command()
def delete(ctx: CommandContext, names: NamesArgument, output: OutputOption = None) -> None:
    """Delete hooks with their secrets.

    Deliveries to them are refused from then on. To change a hook, delete it and create it again.

    \b
    Example:
      toban hooks delete deploy
    """
    here = session(ctx, output)
    with connect(here, "delete hooks") as client:
        for name in names:
            with doing(f"delete hook {shown(name)}"):
                client.delete_hook(name)
            if here.output is OutputFormat.TABLE:
                print(f"deleted {shown(name)}", flush=True)
            elif here.output is OutputFormat.NAME:
                print(name, flush=True)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [{"name": name, "outcome": "deleted"} for name in names])


def _does(hook: hook_pb2.Hook) -> str:
    return f"starts {shown(hook.workflow)}" if hook.workflow else f"emits {shown(hook.event_type)}"


def _form(hook: hook_pb2.Hook) -> str:
    from toban.v1 import hook_pb2

    return SignedForm.HMAC.value if hook.form == hook_pb2.HOOK_FORM_HMAC else SignedForm.GITHUB.value


def _show(here: Session, hook: hook_pb2.Hook) -> None:
    fields(
        here,
        [
            ("hook", hook.name),
            ("path", f"/hooks/{hook.name}"),
            ("workflow", hook.workflow),
            ("event", hook.event_type),
            ("form", _form(hook)),
            ("secret", hook.secret or "its own"),
            *((f"param {name}", path) for name, path in sorted(hook.params.items())),
            *(("if", condition) for condition in hook.conditions),
            ("created", f"{clock(hook.created_at)} by {hook.created_by}"),
        ],
    )
