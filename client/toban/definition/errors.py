"""What the definition package raises.

    DefinitionError
    ├── ParamError    the parameters of a run do not fit the workflow
    ├── RenderError   a template of a step failed; a NON_RETRYABLE failure of that step
    └── CostlyError   only if it was asked for: to be evaluated where it can be ended

A definition that is wrong raises nothing: `parse` returns its problems.
"""

from __future__ import annotations


class DefinitionError(Exception):
    """Base of everything this package raises on purpose."""


class ParamError(DefinitionError):
    """The given parameters are invalid; `problems` lists every (parameter, message). No parameter: all of them."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"parameter {name}: {message}" if name else message for name, message in problems))


class RenderError(DefinitionError):
    """A template could not be turned into something that can be started."""


class CostlyError(DefinitionError):
    """Evaluating this may take long, or much memory. Raised only where `cheap_only` was asked for."""
