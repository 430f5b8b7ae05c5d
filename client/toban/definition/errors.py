"""Exceptions of the definition package.

DefinitionError
├── ParamError    the parameters of a run are invalid for the workflow
├── RenderError   a template of a step failed; a NON_RETRYABLE failure of that step
└── CostlyError   only with `cheap_only`: evaluate it in a process that can be killed

An invalid definition raises nothing: `parse` returns its problems.
"""

from __future__ import annotations


class DefinitionError(Exception):
    """Base of all exceptions that this package raises on purpose."""


class ParamError(DefinitionError):
    """The given parameters are invalid; `problems` lists every (parameter, message). No parameter: all of them."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"parameter {name}: {message}" if name else message for name, message in problems))


class RenderError(DefinitionError):
    """A step's templates could not be rendered."""


class CostlyError(DefinitionError):
    """The evaluation may need much time or memory. Raised only with `cheap_only`."""
