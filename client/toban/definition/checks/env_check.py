"""Checks the environment of steps: variables that make programs load code take no values from outside."""

from __future__ import annotations

import re

from toban.definition.expressions.templates import parse_template
from toban.definition.source.problem_collector import Reports, join
from toban.definition.source.yaml_source import Node

_LOADS_CODE = re.compile(
    "LD_.*|PYTHON.*|BASH_ENV|ENV|IFS|SHELLOPTS|BASHOPTS|PS4|NODE_OPTIONS|NODE_PATH|PERL5OPT|PERL5LIB|RUBYOPT|RUBYLIB|"
    "JAVA_TOOL_OPTIONS|GCONV_PATH",
    re.IGNORECASE,
)
_FIXED = frozenset({"run"})
"""Roots whose values no caller and no step chooses."""


def check_env_values(env: Node, path: str, report: Reports) -> None:
    """Refuses templates in the variables of a mapping whose values a program would execute."""
    for name, entry in env.entries.items():
        check_env_value(name, entry.value, join(path, name), report)


def check_env_value(name: str, value: Node, path: str, report: Reports) -> None:
    """The same for one variable."""
    if not _LOADS_CODE.fullmatch(name) or value.kind != "scalar" or "{{" not in value.text:
        return
    for expression in parse_template(value.text).expressions:
        roots = sorted({ref.root for ref in expression.refs} - _FIXED)
        if roots:
            message = (
                f"{name} can make programs load code, so its value may not come from {roots[0]}: "
                "write a fixed text, or pass the value in another variable"
            )
            report.inside(value, expression.start, path, message)
