"""The shape of steps, and of the fields that steps and jobs share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from toban.definition.model.event_triggers import DEFAULT_SETTLE
from toban.definition.model.step_model import FailurePolicy, JobType, OnLost
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.env_file_fields import EnvFiles
from toban.definition.schema.event_fields import (
    MOST_TYPES,
    EventType,
)
from toban.definition.schema.field_types import (
    FOR_EACH_SCHEMA,
    MOST_ITERATIONS,
    MOST_PIDS,
    MOST_RETRIES,
    Approver,
    ArtifactName,
    Backoff,
    Condition,
    Cores,
    Count,
    Duration,
    Env,
    ErrorClasses,
    Exhausted,
    ExitCode,
    Fixed,
    InputPath,
    Jitter,
    Lax,
    Locks,
    LoopExhausted,
    Memory,
    Name,
    OutputPath,
    Policy,
    RetryOn,
    SandboxPath,
    SecretFiles,
    Shell,
    StepTitle,
    Text,
    Timeout,
    User,
    Watched,
    Workspace,
)
from toban.definition.schema.wait_fields import AwaitedPath, WaitDuration, WaitTime

_PROCESSES = [kind.value for kind in JobType if kind.process]


class ResourcesInput(DefinitionPart):
    """Limits of the step's process tree; at least one."""

    memory: Memory | None = Field(None, description="Memory limit of all processes together.")
    cpu: Cores | None = Field(None, description="CPU limit of all processes together, in cores.")
    pids: Annotated[int, Field(ge=1, le=MOST_PIDS)] | None = Field(
        None, description="Limit of processes and threads at the same time."
    )
    nice: Annotated[int, Field(ge=-20, le=19)] | None = Field(
        None, description="Scheduling priority: 19 is the lowest, -20 the highest."
    )


class SandboxInput(DefinitionPart):
    """What the step's processes may reach, besides the files of the system and of the run; at least one field."""

    network: Literal["none", "host"] = Field("host", description="none: no network but a loopback of its own.")
    read_only: list[SandboxPath] = Field(default=[], description="Absolute paths that it may read and execute.")
    writable: list[SandboxPath] = Field(default=[], description="Absolute paths that it may also change.")
    private_tmp: bool = Field(False, description="Whether it gets an empty directory as TMPDIR.")


class RetryInput(DefinitionPart):
    """Delays between retries, and which errors are retried; at least one field."""

    delay: Duration | None = Field(None, description="Delay before the first retry; default 1s.")
    backoff: Backoff | None = Field(None, description="Factor between two delays; default 2.")
    max_delay: Timeout | None = Field(None, description="Longest delay; default 5m.")
    jitter: Jitter | None = Field(None, description="Random share added to or subtracted from each delay; default 0.2.")
    on: Annotated[list[RetryOn], Field(min_length=1)] | None = Field(
        None,
        description="Error classes and exit codes that are retried; "
        "RETRYABLE_TRANSIENT and RETRYABLE_RATE_LIMIT by default.",
    )


class InputInput(DefinitionPart):
    """An artifact of an earlier step that appears in the workspace."""

    from_: str = Field(alias="from", description="The step; must be in depends_on.")
    artifact: str = Field(description="Name of one of its outputs.")
    as_: InputPath | None = Field(
        None,
        alias="as",
        description="Path in the workspace; default: the artifact's name.",
    )


class OutputInput(DefinitionPart):
    """Artifacts collected from the workspace after success."""

    name: ArtifactName = Field(description="Name of the artifact, for inputs of later steps.")
    path: OutputPath = Field(description="File, directory or glob, relative to the workspace; may contain templates.")
    type: str = Field("", description="Kind of the artifact, for people and programs.")
    optional: bool = Field(False, description="Whether it may be missing after success.")


class ActionInput(DefinitionPart):
    """Fields of steps, jobs and completion checks that say what to run."""

    run: Text | None = Field(None, description="Short for job_type: shell and target.")
    job_type: Annotated[JobType, Lax] | None = Field(
        None,
        description="shell (a script), exec (no shell), cmd (Windows only), powershell, "
        "python (package.module:function), workflow (a child run), approval (a person decides) "
        "or wait (for a time, an event or a file).",
    )
    target: Text | None = Field(None, description="The script, program, function or workflow that runs.")
    args: list[Any] = Field(
        default=[],
        description="shell: $1, $2…, or the arguments of a single command; exec, cmd, powershell: arguments; "
        "python: positional arguments.",
    )
    shell: Shell | None = Field(None, description="sh, bash or the path of a shell; default: sh.")
    errexit: bool = Field(True, description="Whether a shell step ends at the first command that fails (set -e).")
    kwargs: dict[str, Any] = Field(
        default={}, description="Keyword arguments of a python step, params of a workflow step."
    )
    env: Env = Field(default={}, description="Environment, on top of the workflow's.")
    stdin: str | None = Field(None, description="Text for its standard input.")
    secret_files: SecretFiles = Field(
        default={}, description="Private files with secrets, by name, in the directory $TOBAN_SECRET_FILES."
    )
    timeout: Timeout | None = Field(None, description="Of one attempt; with completion_check, of the whole loop.")
    idle_timeout: Timeout | None = Field(
        None, description="Ends an attempt that has written nothing to stdout and stderr for so long."
    )
    success_codes: Annotated[list[ExitCode], Field(min_length=1)] = Field(
        default=[0], description="Exit codes that count as success."
    )
    error_classes: ErrorClasses = Field(
        default={}, description="Exit code to error class, which decides about retries."
    )


class CheckInput(ActionInput):
    """Says after success whether the step's work is complete: exit code 0 is yes, another one not yet."""

    job_type: Annotated[JobType, Lax, WithJsonSchema({"enum": _PROCESSES})] | None = Field(
        None, description="shell, exec, cmd, powershell or python."
    )
    kwargs: dict[str, Any] = Field(default={}, description="Keyword arguments of a python check.")
    env: Env = Field(default={}, description="Environment, on top of the step's.")
    timeout: Timeout | None = Field(None, description="Of one check; default: a quarter of the step's.")


class WaitInput(DefinitionPart):
    """What a step waits for: exactly one of for, until, event and file."""

    for_: WaitDuration | None = Field(None, alias="for", description="A duration, from when the step began to wait.")
    until: WaitTime | None = Field(
        None, description="A time such as 2026-12-01T09:30+09:00, or a time of day, whose next occurrence is meant."
    )
    event: EventType | Annotated[list[EventType], Field(min_length=1, max_length=MOST_TYPES)] | None = Field(
        None, description="An event type, or a list of types, any of which ends the wait."
    )
    condition: Condition | None = Field(None, description="Expression over event, and all that templates know.")
    file: AwaitedPath | None = Field(None, description="A path that must exist; relative to the base directory.")
    settle: Duration = Field(DEFAULT_SETTLE, description="How long the file must not have changed.")


class WorkInput(ActionInput):
    """Fields that steps and jobs share."""

    description: str = Field("", description="Shown to people.")
    env_file: EnvFiles | None = Field(
        None, description="Files with environment variables, in dotenv format; env wins over them."
    )
    python: Fixed | None = Field(None, description="Interpreter of a python step; default: the daemon's own.")
    workspace: Workspace | None = Field(None, description="Working directory.")
    kill_grace: Duration = Field(10.0, description="TERM to the whole tree, KILL after this.")
    max_retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = Field(
        0, description="Retries before on_failure decides; 3 with on_failure: retry."
    )
    retry: RetryInput | None = Field(None, description="Delays between retries, and which errors are retried.")
    on_failure: Policy = Field(
        FailurePolicy.ABORT,
        description="abort ends the run, skip skips what depends on the step, continue goes on, "
        "retry tries again and then follows on_failure_exhausted.",
    )
    on_failure_exhausted: Exhausted = Field(
        "abort", description="With on_failure: retry, what happens after the last retry."
    )
    completion_check: CheckInput | None = Field(
        None, description="Runs after success; the step is repeated until it succeeds."
    )
    max_iterations: Annotated[int, Field(ge=1, le=MOST_ITERATIONS)] = Field(
        1, description="Maximum number of iterations of the completion_check loop."
    )
    interval: Duration = Field(0.0, description="Pause after a check that did not pass, before the next iteration.")
    on_iterations_exhausted: LoopExhausted = Field(
        "abort",
        description="After the last iteration: abort, or continue with the step INCOMPLETE.",
    )
    stop_when_unchanged: Watched | None = Field(
        None,
        description="A path in the workspace, or output: if an iteration does not change it, "
        "the loop ends as exhausted.",
    )
    approvers: Annotated[list[Approver], Field(min_length=1)] | None = Field(
        None, description="Who may decide an approval step: names of identities, or role:admin."
    )
    on_lost: Annotated[OnLost, Lax] = Field(
        OnLost.FAIL,
        description="When its process vanished without a result: fail, or rerun if it is safe to repeat.",
    )
    user: User = Field("", description="User to run as; needs a daemon that may start steps as other users.")
    resources: ResourcesInput | None = Field(None, description="Limits of its processes.")
    no_new_privileges: bool = Field(
        False, description="Whether setuid programs such as sudo give its processes no privileges."
    )
    sandbox: SandboxInput | None = Field(None, description="Limits what its processes may reach.")
    locks: Locks | None = Field(
        None, description="Locks that it holds while it runs; it waits until it gets all of them at once."
    )


class DefaultsInput(WorkInput):
    """Fields that every step inherits."""

    when: Condition = Field("", description="Expression; if it is false, the step is skipped and others go on.")
    for_each: Annotated[Any, WithJsonSchema(FOR_EACH_SCHEMA)] = Field(
        None,
        description="One instance per item: an expression that gives a list, a list, or a mapping "
        "of names to either, for all combinations.",
    )
    max_parallel: Count | None = Field(None, description="Instances at the same time.")
    outputs: list[OutputInput] = Field(default=[], description="Artifacts collected from the workspace after success.")


class StepInput(DefaultsInput):
    """One step of a mapping; its key is its id."""

    id: Name | None = Field(None, description="The same as its key.")
    name: StepTitle | None = Field(None, description="Shown to people; any text.")
    title: StepTitle | None = Field(None, description="The same as name.")
    job: Name | None = Field(None, description="Id of a job; fields given here override those of the job.")
    wait: WaitInput | None = Field(None, description="What it waits for; short for job_type: wait.")
    depends_on: list[str] | None = Field(None, description="Ids of the steps that must end first.")
    inputs: list[InputInput] = Field(default=[], description="Artifacts of earlier steps that appear in the workspace.")


class ListedStepInput(StepInput):
    """One step of a sequence; it follows the one before unless it has its own depends_on."""

    id: Name | None = Field(None, description="The id of the step; default: its name, or that of its job.")
    name: StepTitle | None = Field(
        None, description="Shown to people, and the id or, in any other script, the text that the id is derived from."
    )
    title: StepTitle | None = Field(None, description="Shown to people, instead of the name.")
    step_order: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Number by which the steps are sorted; on all steps of the list, or on none."
    )
