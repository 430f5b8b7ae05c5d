"""The shape of a definition as pydantic models: what editors complete and what `shape` checks by.

Only the shape: what depends on other fields (references, kinds of steps, cycles) is checked elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from toban.definition.model.workflow import FailurePolicy, JobType, OnLost, Overlap, ParamType
from toban.definition.schema.event_fields import (
    MOST_TRIGGERS,
    MOST_TYPES,
    MOST_WATCHED,
    EventType,
    WatchedPath,
)
from toban.definition.schema.fields import (
    FOR_EACH_SCHEMA,
    FREE,
    MOST_ITERATIONS,
    MOST_PIDS,
    MOST_RETRIES,
    ArtifactName,
    Backoff,
    Condition,
    ContextDir,
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
    Labels,
    Lax,
    LoopExhausted,
    Memory,
    Name,
    OutputPath,
    Policy,
    Priority,
    RetryOn,
    Size,
    Text,
    Timeout,
    User,
    Version,
    Watched,
    Workspace,
    check_param_name,
)
from toban.definition.schema.schedule_fields import (
    MOST_SCHEDULES,
    CronText,
    Every,
    Moment,
    Spread,
    Window,
    Words,
    ZoneName,
)
from toban.definition.timing.schedule_spec import DEFAULT_MISFIRE_GRACE, Fold, Gap, Misfire

_PROCESSES = [kind.value for kind in JobType if kind.process]


class Shape(BaseModel):
    """Base of the models: nothing is converted silently, nothing unknown is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class ParamInput(Shape):
    """A parameter of the workflow."""

    type: Annotated[ParamType, Lax] = ParamType.STRING
    default: Annotated[Any, FREE] = Field(None, description="Value when the run gives none.")
    required: bool = Field(False, description="Whether every run must give it.")
    choices: Annotated[list[Any], Field(min_length=1)] | None = Field(None, description="The only values allowed.")
    description: str = ""


class ResourcesInput(Shape):
    """Limits of the step's process tree; at least one."""

    memory: Memory | None = Field(None, description="Bytes that all processes together may use.")
    cpu: Cores | None = Field(None, description="Cores that all processes together may use.")
    pids: Annotated[int, Field(ge=1, le=MOST_PIDS)] | None = Field(
        None, description="Processes and threads at the same time."
    )
    nice: Annotated[int, Field(ge=-20, le=19)] | None = Field(
        None, description="Scheduling priority: 19 gives way to all others, -20 to none."
    )


class RetentionInput(Shape):
    """How long ended runs are kept; at least one."""

    age: Timeout | None = Field(None, description="Runs that ended longer ago may go.")
    runs: Count | None = Field(None, description="How many of the newest runs stay.")
    bytes: Size | None = Field(None, description="What runs and logs together may take.")


class RetryInput(Shape):
    """How retries are spaced, and what is retried; at least one."""

    delay: Duration | None = Field(None, description="Before the first retry; 1s if not given.")
    backoff: Backoff | None = Field(None, description="What each delay is multiplied by for the next; 2 if not given.")
    max_delay: Timeout | None = Field(None, description="No delay is longer; 5m if not given.")
    jitter: Jitter | None = Field(
        None, description="Share of each delay that chance adds or takes away; 0.2 if not given."
    )
    on: Annotated[list[RetryOn], Field(min_length=1)] | None = Field(
        None,
        description="Error classes and exit codes that are retried; "
        "RETRYABLE_TRANSIENT and RETRYABLE_RATE_LIMIT if not given.",
    )


class ScheduleInput(Shape):
    """When runs start by themselves: exactly one of cron, every, at and when, and what goes with it."""

    cron: CronText | None = Field(
        None, description="As in crontab(5); six fields put the seconds first; @daily, @reboot, …"
    )
    every: Every | None = Field(None, description="Interval, from start, or else from when the schedule was stored.")
    at: Moment | None = Field(None, description="Once, at a time with its offset from UTC.")
    when: Words | None = Field(None, description="In words, English or Japanese; read when the definition is stored.")
    timezone: ZoneName | None = Field(None, description="The workflow's if not given.")
    start: Moment | None = Field(None, description="Not due before.")
    end: Moment | None = Field(None, description="Not due after.")
    max_occurrences: Count | None = Field(None, description="How often it is due at most.")
    jitter: Spread = Field(0.0, description="Spreads starts over so much time; always the same for one schedule.")
    params: dict[str, Any] = Field(default={}, description="Parameters of its runs.")
    misfire: Annotated[Misfire, Lax] = Field(
        Misfire.RUN_ONCE,
        description="Times that passed while nobody was there: skip, run_once or run_all.",
    )
    misfire_grace: Duration = Field(
        DEFAULT_MISFIRE_GRACE, description="Times that are longer ago are not caught up with."
    )
    gap: Annotated[Gap, Lax] = Field(
        Gap.SHIFT, description="Local times that a clock change leaves out: shift or skip."
    )
    fold: Annotated[Fold, Lax] = Field(
        Fold.ONCE, description="Local times that a clock change brings twice: once or both."
    )


_Schedules = (
    CronText | ScheduleInput | Annotated[list[CronText | ScheduleInput], Field(min_length=1, max_length=MOST_SCHEDULES)]
)


class TriggerInput(Shape):
    """Events that start it."""

    event: EventType | Annotated[list[EventType], Field(min_length=1, max_length=MOST_TYPES)] | None = Field(
        None, description="The type, or a list of types; any of them will do."
    )
    condition: Condition | None = Field(
        None, description="Expression that has to be true of the event, which it sees as event."
    )
    priority: Priority | None = Field(None, description="Of the runs that it starts; the workflow's if not given.")


_Triggers = (
    EventType | TriggerInput | Annotated[list[EventType | TriggerInput], Field(min_length=1, max_length=MOST_TRIGGERS)]
)


class InputInput(Shape):
    """An artifact of an earlier step that appears in the workspace."""

    from_: str = Field(alias="from", description="The step; must be in depends_on.")
    artifact: str = Field(description="Name of one of its outputs.")
    as_: InputPath | None = Field(
        None,
        alias="as",
        description="Where it appears in the workspace; under the artifact's name if not given.",
    )


class OutputInput(Shape):
    """What is kept of the workspace after success."""

    name: ArtifactName = Field(description="Name of the artifact, for inputs of later steps.")
    path: OutputPath = Field(description="File, directory or glob, relative to the workspace; may hold templates.")
    type: str = Field("", description="What kind of thing it is, for people and programs.")
    optional: bool = Field(False, description="Whether it may be missing after success.")


class ActionInput(Shape):
    """What runs, for steps, jobs and completion checks alike."""

    run: Text | None = Field(None, description="Short for job_type: shell and target.")
    job_type: Annotated[JobType, Lax] | None = Field(
        None,
        description="shell (/bin/sh -c), exec (no shell), cmd (Windows only), powershell, "
        "python (package.module:function), workflow (a child run) or approval (a person decides).",
    )
    target: Text | None = Field(None, description="The script, program, function or workflow that runs.")
    args: list[Any] = Field(
        default=[],
        description="shell: $1, $2…; exec, cmd, powershell: arguments; python: positional arguments.",
    )
    kwargs: dict[str, Any] = Field(
        default={}, description="Keyword arguments of a python step, params of a workflow step."
    )
    env: Env = Field(default={}, description="Environment, on top of the workflow's.")
    stdin: str | None = Field(None, description="Text for its standard input.")
    timeout: Timeout | None = Field(None, description="Of one attempt; with completion_check, of the whole loop.")
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
    timeout: Timeout | None = Field(None, description="Of one check; a quarter of the step's if not given.")


class WorkInput(ActionInput):
    """What steps and jobs have in common."""

    description: str = Field("", description="Shown to people.")
    python: Fixed | None = Field(None, description="Interpreter of a python step; the daemon's own if not given.")
    workspace: Workspace | None = Field(None, description="Working directory.")
    kill_grace: Duration = Field(10.0, description="TERM to the whole tree, KILL after this.")
    max_retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = Field(
        0, description="Retries before on_failure decides; 3 with on_failure: retry."
    )
    retry: RetryInput | None = Field(None, description="How retries are spaced, and what is one.")
    on_failure: Policy = Field(
        FailurePolicy.ABORT,
        description="abort ends the run, skip skips what depends on the step, continue goes on, "
        "retry tries again and then does as on_failure_exhausted says.",
    )
    on_failure_exhausted: Exhausted = Field(
        "abort", description="With on_failure: retry, what happens after the last one."
    )
    completion_check: CheckInput | None = Field(
        None, description="Runs after success; the step is repeated until it succeeds."
    )
    max_iterations: Annotated[int, Field(ge=1, le=MOST_ITERATIONS)] = Field(
        1, description="How often the step may run until its completion_check succeeds."
    )
    on_iterations_exhausted: LoopExhausted = Field(
        "abort",
        description="After the last iteration: abort, or continue with the step INCOMPLETE.",
    )
    stop_when_unchanged: Watched | None = Field(
        None,
        description="A path in the workspace, or output: if an iteration does not change it, "
        "the loop ends as exhausted.",
    )
    approvers: Annotated[list[Fixed], Field(min_length=1)] | None = Field(
        None, description="Who may decide an approval step: user names, or uid:1000."
    )
    on_lost: Annotated[OnLost, Lax] = Field(
        OnLost.FAIL,
        description="When its process vanished without a result: fail, or rerun if it may be repeated.",
    )
    user: User = Field("", description="Whom it runs as; the daemon must be root for another user.")
    resources: ResourcesInput | None = Field(None, description="Limits of its processes.")


class JobInput(WorkInput):
    """A job: a step to be used by name, or to be run alone; its key is its id."""

    name: Text | None = Field(None, description="Shown to people.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    labels: Labels = {}
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    schedule: _Schedules | None = Field(
        None, description="When it starts by itself: a crontab expression, a mapping, or a list."
    )
    timezone: ZoneName | None = Field(None, description="Of its schedules; the daemon's if not given.")
    on: _Triggers | None = Field(None, description="Events that start it: a type, a mapping, or a list.")


class DefaultsInput(WorkInput):
    """Fields that every step inherits."""

    when: Condition = Field("", description="Expression; if it is false, the step is skipped and others go on.")
    for_each: Annotated[Any, WithJsonSchema(FOR_EACH_SCHEMA)] = Field(
        None,
        description="One instance per item: an expression that gives a list, a list, or a mapping "
        "of names to either, for all combinations.",
    )
    max_parallel: Count | None = Field(None, description="Instances at the same time.")
    outputs: list[OutputInput] = Field(default=[], description="What is kept of the workspace after success.")


class StepInput(DefaultsInput):
    """One step of a mapping; its key is its id."""

    name: Text | None = Field(None, description="Shown to people.")
    job: Name | None = Field(None, description="Id of a job; the fields given here go before those of the job.")
    depends_on: list[str] | None = Field(None, description="Ids of the steps that come before.")
    inputs: list[InputInput] = Field(default=[], description="Artifacts of earlier steps that appear in the workspace.")


class ListedStepInput(StepInput):
    """One step of a sequence; it follows the one before unless it has its own depends_on."""

    name: Name | None = Field(None, description="The id of the step; the job's if it has one.")


class WorkflowInput(Shape):
    """A Toban workflow."""

    name: Name = Field(description="Unique id of the workflow.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    version: Version = Field("1", description="Version of the format.")
    description: str = ""
    labels: Labels = {}
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    schedule: _Schedules | None = Field(
        None, description="When it starts by itself: a crontab expression, a mapping, or a list."
    )
    timezone: ZoneName | None = Field(None, description="Of its schedules and blackouts; the daemon's if not given.")
    blackout: Annotated[list[Window], Field(min_length=1)] | None = Field(
        None, description='Windows in which schedules start nothing, such as "0 2 * * sun/2h".'
    )
    on: _Triggers | None = Field(None, description="Events that start it: a type, a mapping, or a list.")
    watch: WatchedPath | Annotated[list[WatchedPath], Field(min_length=1, max_length=MOST_WATCHED)] | None = Field(
        None,
        description="Files and directories whose changes are FILE_CHANGED events; "
        "relative ones start at the base directory.",
    )
    params: dict[Annotated[str, AfterValidator(check_param_name)], ParamInput] = {}
    env: Env = Field(default={}, description="Environment of every step.")
    timeout: Timeout | None = Field(None, description="Of the whole run, from its start.")
    concurrency: Count | None = Field(None, description="Steps of one run at the same time.")
    max_active_runs: Count = Field(1, description="Runs of this workflow at the same time.")
    overlap: Annotated[Overlap, Lax] = Field(
        Overlap.SKIP,
        description="What a run beyond max_active_runs meets: skip refuses it, queue lets it wait, "
        "replace cancels the oldest, allow ignores the limit.",
    )
    priority: Priority = Field(0, description="Order among what waits: higher goes first.")
    retention: RetentionInput | None = Field(None, description="How long ended runs are kept.")
    context_dir: ContextDir = Field("", description="Where artifacts go; a directory of the run's own if not given.")
    scopes: dict[Name, Annotated[list[str], Field(min_length=1)]] = Field(
        default={}, description="Named subsets of the steps, for partial runs."
    )
    defaults: DefaultsInput | None = None
    steps: (
        Annotated[dict[Name, StepInput], Field(min_length=1)] | Annotated[list[ListedStepInput], Field(min_length=1)]
    ) = Field(description="A mapping ordered by depends_on, or a list that runs in order.")


class JobsInput(Shape):
    """A document of Toban jobs."""

    version: Version = Field("1", description="Version of the format.")
    jobs: Annotated[dict[Name, JobInput], Field(min_length=1)] = Field(
        description="Jobs by their ids, which they share with workflows."
    )
