"""Refuses templates in arguments that an interpreter parses as code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from toban.definition.checks.step_layers import StepDraft
from toban.definition.expressions.templates import Fault, scan_expression
from toban.definition.model.step_model import JobType
from toban.definition.scripts.code_arguments import CodeArguments, code_arguments
from toban.definition.scripts.shell_arguments import ArgsUse, args_use
from toban.definition.scripts.shell_reader import outline

_QUOTES = "'\""


@dataclass(frozen=True, slots=True)
class CodeTemplates:
    """What a step gives to interpreters as code.

    `spans` of its script, each with the message for a template in it; `args` by index, with their message.
    """

    spans: tuple[tuple[int, int, str], ...] = ()
    args: tuple[tuple[int, str], ...] = ()

    def faults(self, script: str) -> Iterator[Fault]:
        """One for each piece of code with a template that is neither raw nor constant."""
        for start, end, message in self.spans:
            at = script.find("{{", start, end)
            while at >= 0:
                found = scan_expression(script, at)
                if isinstance(found, Fault):
                    break
                if found.refs and not found.raw:
                    yield Fault(message, at)
                    break
                at = script.find("{{", found.end, end)

    def covers(self, offset: int) -> bool:
        return any(start <= offset < end for start, end, _ in self.spans)

    def of_arg(self, index: int) -> str:
        """The message for a template in this argument; empty if it is no code."""
        return dict(self.args).get(index, "")


def code_templates(draft: StepDraft) -> CodeTemplates:
    """Where a step with a valid target must not have templates, except raw ones."""
    target = draft.target_field
    if target is None:
        return CodeTemplates()
    args = _args(draft)
    if draft.job_type is JobType.EXEC:
        return CodeTemplates(args=_of_args(code_arguments([target.value.text, *args]), 1))
    if draft.job_type is not JobType.SHELL:
        return CodeTemplates()
    script = target.value.text
    appended = bool(args) and args_use(script) is ArgsUse.APPENDED
    spans: list[tuple[int, int, str]] = []
    in_args: tuple[tuple[int, str], ...] = ()
    for command in outline(script).commands:
        words = [script[start:end].strip(_QUOTES) for start, end in command.words]
        found = code_arguments([*words, *(args if appended else ())])
        if found is None:
            continue
        spans += [(*command.words[place], found.message(place)) for place in sorted(found.places) if place < len(words)]
        in_args = in_args or _of_args(found, len(words))
    return CodeTemplates(tuple(spans), in_args)


def _args(draft: StepDraft) -> list[str]:
    found = draft.fields.get("args")
    if found is None or "args" not in draft.values or found.value.kind != "seq":
        return []
    return [item.text if item.kind == "scalar" else "" for item in found.value.items]


def _of_args(found: CodeArguments | None, before: int) -> tuple[tuple[int, str], ...]:
    """The code among the args, which follow so many other words."""
    if found is None:
        return ()
    return tuple((place - before, found.message(place)) for place in sorted(found.places) if place >= before)
