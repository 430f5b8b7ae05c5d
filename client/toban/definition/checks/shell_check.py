"""Checks the script of a `shell` step against its shell and its args."""

from __future__ import annotations

from toban.definition.checks.step_layers import StepDraft
from toban.definition.schema.field_check import FieldOrigin
from toban.definition.scripts.shell_arguments import ArgsUse, args_use
from toban.definition.scripts.shells import wrong_interpreter
from toban.definition.source.problem_collector import Reporter

_UNUSED = (
    'the script never uses its args: write $1, $2, … or "$@" where they belong, or remove them '
    "(only a script that is one simple command gets them as its arguments)"
)


def check_shell_step(draft: StepDraft, report: Reporter, *, inherited: str = "") -> None:
    """`inherited` is the shell of the step that a completion check belongs to."""
    target = draft.target_field
    script = draft.values.get("run", draft.values.get("target"))
    if target is None or script is None:
        return
    if message := wrong_interpreter(script, draft.values.get("shell", inherited)):
        draft.reports(target, report).at(target.value, target.path, message)
    args = draft.fields.get("args")
    if args is None or not draft.values.get("args") or args.origin is FieldOrigin.DEFAULTS:
        return
    if args_use(script) is ArgsUse.UNUSED:
        draft.reports(args, report).at(args.key, args.path, _UNUSED)
