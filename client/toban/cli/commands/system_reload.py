"""`toban system reload`: reads the configuration and the definition files again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.cli.args.name_arguments import connect
from toban.cli.exits import Exit
from toban.cli.human_text import enum_word
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, complain, session
from toban.cli.syntax import CommandContext, ExitCommand
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.v1 import system_pb2


def reload(ctx: CommandContext, output: OutputOption = None) -> None:
    """Read the configuration and all definition files again.

    Shows which settings changed, and which of them take effect only when the daemon starts again. No run is disturbed.
    An invalid configuration changes nothing.

    The definition files are those of `definitions` in the configuration. The daemon also notices changes of them by
    itself. Exits with 7 if the configuration or a file is invalid: what was in effect stays in effect.

    \b
    Examples:
      toban system reload
      toban system reload -o json
    """
    here = session(ctx, output)
    with connect(here, "reload the configuration") as client:
        settings = client.reload_config()
        done = client.reload()
    match here.output:
        case OutputFormat.TABLE:
            _show_settings(settings)
            _show_definitions(done)
        case OutputFormat.NAME:
            for setting in settings.applied:
                print(setting.key)
            for change in done.changes:
                print(change.name)
        case _:
            emit_data(here, {"configuration": to_dict(settings), **to_dict(done)})
    for warning in settings.warnings:
        complain(f"warning: {warning}")
    if settings.problems:
        complain("toban: the configuration is invalid, and nothing of it changed:")
    for problem in [*settings.problems, *(text for file in done.broken for text in file.problems)]:
        complain(problem)
    if settings.problems or done.broken:
        raise ExitCommand(Exit.INVALID_DEFINITION)


def _show_settings(done: system_pb2.ReloadConfigResponse) -> None:
    for setting in done.applied:
        print(f"{setting.key}: {_change(setting)}")
    for setting in done.needs_restart:
        print(f"{setting.key}: {_change(setting)}, when the daemon starts again")
    if done.problems:
        print(f"configuration: invalid, {counted(len(done.problems), 'problem')}")
    else:
        late = f", {len(done.needs_restart)} need a restart" if done.needs_restart else ""
        print(f"configuration: {counted(len(done.applied), 'change')} in effect{late}")


def _change(setting: system_pb2.ConfigChange) -> str:
    """Digests and passwords are hidden, and so look the same."""
    if setting.before_json == setting.after_json:
        return "changed"
    return f"{setting.before_json} -> {setting.after_json}"


def _show_definitions(done: system_pb2.ReloadResponse) -> None:
    from toban.v1 import system_pb2

    for change in done.changes:
        print(f"{change.name} {enum_word(system_pb2.DefinitionOutcome, change.outcome)} ({change.path})")
    if done.change_count > len(done.changes):
        print(f"and {counted(done.change_count - len(done.changes), 'more change')}")
    read = f"{counted(done.files, 'file')} read"
    broken = f", {len(done.broken)} broken" if done.broken else ""
    print(f"definitions: {read}{broken}, {counted(done.change_count, 'change')}")
