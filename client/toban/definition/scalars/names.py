"""Names of workflows, jobs, steps, locks and secrets, which are also their ids.

Standard library only, because the settings of the daemon have names too.
"""

from __future__ import annotations

import re

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
IDENTIFIER_PATTERN = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
WORKFLOW_PATTERN = r"[A-Za-z0-9_*?\[\]!-]{1,100}"
"""Of names of workflows and jobs, as `fnmatch` reads it."""
_WORKFLOW_PATTERN = re.compile(WORKFLOW_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_NAME_FORM = "a letter or digit, then up to 63 letters, digits, _ or -"
_IDENTIFIER = re.compile(IDENTIFIER_PATTERN)
_IDENTIFIER_FORM = "a letter or _, then up to 63 letters, digits or _"


def valid_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None


def check_workflow_pattern(value: str) -> str:
    """The name of a workflow or a job, or a pattern of names such as `nightly-*`. Raises ValueError."""
    if _WORKFLOW_PATTERN.fullmatch(value) is None:
        raise ValueError(f'"{value}" is not a name or a pattern: use letters, digits, _, -, *, ? and [...]')
    return value


def check_name(value: str) -> str:
    """The name, if it is valid. Raises ValueError."""
    if not valid_name(value):
        raise ValueError(f'"{value}" is not a valid name: use {_NAME_FORM}')
    return value


def valid_secret_name(value: str) -> bool:
    """Templates name secrets as `secrets.NAME`, so a name is an identifier."""
    return _IDENTIFIER.fullmatch(value) is not None


def check_secret_name(value: str) -> str:
    """The name, if it is valid. Raises ValueError."""
    if not valid_secret_name(value):
        raise ValueError(f'"{value}" is not a valid name of a secret: use {_IDENTIFIER_FORM}')
    return value
