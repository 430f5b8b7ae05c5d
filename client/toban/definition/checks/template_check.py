"""Checks templates: their names, types, and positions in a script."""

from __future__ import annotations

from toban.definition.checks.code_check import CodeTemplates
from toban.definition.expressions.cel import Rejected, compile_expression
from toban.definition.expressions.template_names import TemplateNames, ValueKind
from toban.definition.expressions.templates import Expression, parse_bare, parse_template
from toban.definition.scripts.script import Form, Script
from toban.definition.source.problem_collector import Reports, join
from toban.definition.source.yaml_source import Node

_COMPUTED = "a secret is used as it is, so that logs can mask it: write {{{{ {} }}}} alone, and compute in the step"
_NOT_RAW = "raw( ) inserts text into a script; here every value is inserted as it is: remove it"
_RAW = "raw( ) inserts the value as code: make sure that it cannot come from outside"
_KIND_NAMES = {
    ValueKind.STRING: "a string",
    ValueKind.INT: "an integer",
    ValueKind.DOUBLE: "a number that may not be an integer",
    ValueKind.BOOL: "a boolean",
    ValueKind.LIST: "a list",
    ValueKind.MAP: "a mapping",
    ValueKind.TEXTS: "a mapping",
    ValueKind.DYN: "a value of unknown type",
}


class TemplateCheck:
    """Reports problems of templates in one part of a definition, with the names that are valid there."""

    def __init__(self, report: Reports, names: TemplateNames) -> None:
        self._report = report
        self._names = names

    def text(self, node: Node, path: str) -> None:
        """A scalar whose templates are replaced by their text."""
        if "{{" not in node.text:
            return
        template = parse_template(node.text)
        for fault in template.faults:
            self._report.inside(node, fault.offset, path, fault.message)
        for expression in template.expressions:
            if expression.raw:
                self._report.inside(node, expression.start, path, _NOT_RAW)
            else:
                self._kind(node, path, expression)

    def value(self, node: Node, path: str) -> None:
        """Plain data with templates in any of its texts."""
        if node.kind == "scalar":
            if isinstance(node.value, str):
                self.text(node, path)
        elif node.kind == "seq":
            for index, item in enumerate(node.items):
                self.value(item, join(path, index))
        else:
            for name, entry in node.entries.items():
                if "{{" in name:
                    message = "a template is not allowed in a key: use it in the value"
                    self._report.at(entry.key, path, message)
                self.value(entry.value, join(path, name))

    def bare(self, node: Node, path: str, expected: ValueKind) -> None:
        """A text that is one expression and must have a value of one kind."""
        expression = parse_bare(node.text)
        for fault in expression.faults:
            self._report.inside(node, fault.offset, path, fault.message)
        kind = self._kind(node, path, expression)
        if kind is not None and kind not in (expected, ValueKind.DYN):
            message = f"expected {_KIND_NAMES[expected]}, but the expression gives {_KIND_NAMES[kind]}"
            self._report.inside(node, 0, path, message)

    def arguments(self, node: Node, path: str, code: CodeTemplates) -> None:
        """The arguments of a command. In code only raw and constant templates are allowed."""
        for index, item in enumerate(node.items):
            place = join(path, index)
            message = code.of_arg(index)
            if not message or item.kind != "scalar" or "{{" not in item.text:
                self.value(item, place)
                continue
            template = parse_template(item.text)
            for fault in template.faults:
                self._report.inside(item, fault.offset, place, fault.message)
            for expression in template.expressions:
                self._kind(item, place, expression)
                if expression.raw:
                    self._report.inside(item, expression.start, place, _RAW, warning=True)
                elif expression.refs:
                    self._report.inside(item, expression.start, place, message)

    def script(self, node: Node, path: str, script: Script, code: CodeTemplates) -> None:
        """A text that was parsed as a script."""
        refused = list(code.faults(node.text))
        for fault in [*(each for each in script.faults if not (refused and code.covers(each.offset))), *refused]:
            self._report.inside(node, fault.offset, path, fault.message)
        for expression in script.misplaced:
            self._kinds(node, path, expression)
        for slot in script.slots:
            kind = self._kind(node, path, slot.expression)
            start = slot.expression.start
            if slot.form is Form.RAW:
                self._report.inside(node, start, path, _RAW, warning=True)
            elif slot.form is Form.NUMBER and kind is not None and kind is not ValueKind.INT:
                message = f"inside $(( )) only integers are safe, found {_KIND_NAMES[kind]}"
                self._report.inside(node, start, path, f"{message}: write int(…)")

    def _kinds(self, node: Node, path: str, expression: Expression) -> list[ValueKind] | None:
        kinds = []
        for ref in expression.refs:
            resolved = self._names.resolve(ref)
            if isinstance(resolved, ValueKind):
                kinds.append(resolved)
            else:
                self._report.inside(node, expression.offset + ref.start, path, resolved)
        return kinds if len(kinds) == len(expression.refs) else None

    def _kind(self, node: Node, path: str, expression: Expression) -> ValueKind | None:
        """The static kind of an expression, or None after reporting its problem."""
        kinds = self._kinds(node, path, expression)
        if kinds is None or expression.faults:
            return None
        if not expression.is_reference:
            for ref in filter(self._names.is_secret, expression.refs):
                self._report.inside(node, expression.offset + ref.start, path, _COMPUTED.format(ref))
                return None
        if expression.path is not None:
            if not expression.path:
                return kinds[0]
            if kinds[0] in (ValueKind.DYN, ValueKind.MAP):
                return ValueKind.DYN
        compiled = compile_expression(expression, kinds, self._names.knows)
        if isinstance(compiled, Rejected):
            for fault in compiled.faults:
                self._report.inside(node, fault.offset, path, fault.message)
            return None
        return compiled.kind
