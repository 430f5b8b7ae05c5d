"""The fields of the definition format that can be given in Python, for type checkers and editors.

docs/definition.md describes them. What is written as one word or as a mapping has the type Any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

# A text such as "5m", or seconds.
Duration = str | int | float


class PythonStepFields(TypedDict, total=False):
    """Fields of a step that calls a function. `depends_on` takes steps, their results and ids, one or several."""

    completion_check: Any
    depends_on: object
    description: str
    env: Mapping[str, Any]
    env_file: Any
    error_classes: Mapping[int, str]
    for_each: Any
    id: str
    idle_timeout: Duration
    inputs: Sequence[Mapping[str, Any]]
    interval: Duration
    kill_grace: Duration
    locks: Any
    max_iterations: int
    max_parallel: int
    max_retries: int
    name: str
    no_new_privileges: bool
    on_failure: str
    on_failure_exhausted: str
    on_iterations_exhausted: str
    on_lost: str
    outputs: Sequence[Mapping[str, Any]]
    python: str
    resources: Mapping[str, Any]
    retry: Mapping[str, Any]
    sandbox: Mapping[str, Any]
    secret_files: Mapping[str, Any]
    stdin: Any
    stop_when_unchanged: Any
    success_codes: Sequence[int]
    timeout: Duration
    title: str
    user: str | int
    when: Any
    workspace: Any


class StepFields(PythonStepFields, total=False):
    """Fields of a step of any kind."""

    approvers: Sequence[str]
    args: Sequence[Any]
    errexit: bool
    job: str
    job_type: str
    kwargs: Mapping[str, Any]
    run: Any
    shell: str
    target: Any
    wait: Any


class WorkflowFields(TypedDict, total=False):
    """Fields of a workflow. Its parameters and steps come from the function."""

    blackout: Sequence[str]
    calendar: Any
    concurrency: int
    context_dir: str
    defaults: Mapping[str, Any]
    description: str
    enabled: bool
    env: Mapping[str, Any]
    env_file: Any
    finally_timeout: Duration
    grants: Sequence[Mapping[str, Any]]
    id: str
    labels: Mapping[str, str]
    locks: Any
    max_active_runs: int
    name: str
    on: Any
    on_cancel: Any
    on_failure: Any
    on_success: Any
    overlap: str
    priority: int
    retention: Mapping[str, Any]
    schedule: Any
    scopes: Mapping[str, Sequence[str]]
    timeout: Duration
    timezone: str
    title: str
    triggers: Mapping[str, Any]
    version: str
    watch: Any
