"""The shape of a definition as pydantic models, for the editors' JSON Schema and for `field_check`.

Only the shape: rules that depend on other fields (references, kinds of steps, cycles) are checked elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from toban.definition.model.event_triggers import DEFAULT_SETTLE
from toban.definition.model.grant import GrantRole
from toban.definition.model.step_model import FailurePolicy, JobType, OnLost
from toban.definition.model.workflow import DEFAULT_FINALLY_TIMEOUT, Overlap, ParamType
from toban.definition.schema.env_file_fields import EnvFiles
from toban.definition.schema.event_fields import (
    MOST_STARTS,
    MOST_TRIGGERS,
    MOST_TYPES,
    MOST_WATCHED,
    EventKey,
    EventType,
    PaceTime,
    WatchedPath,
)
from toban.definition.schema.field_types import (
    FOR_EACH_SCHEMA,
    FREE,
    MOST_ITERATIONS,
    MOST_PIDS,
    MOST_RETRIES,
    Approver,
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
    Locks,
    LoopExhausted,
    Memory,
    Name,
    OutputPath,
    Policy,
    Priority,
    RetryOn,
    SandboxPath,
    SecretFiles,
    Shell,
    Size,
    StepTitle,
    Text,
    Timeout,
    User,
    Version,
    Watched,
    WorkflowPattern,
    Workspace,
    check_param_name,
)
from toban.definition.schema.schedule_fields import (
    MOST_SCHEDULES,
    BusinessDay,
    CalendarInput,
    CronText,
    Every,
    Milliseconds,
    Moment,
    Spread,
    Window,
    Words,
    ZoneName,
)
from toban.definition.schema.wait_fields import AwaitedPath, WaitDuration, WaitTime
from toban.definition.timing.schedule_spec import DEFAULT_MISFIRE_GRACE, Fold, Gap, Misfire

_PROCESSES = [kind.value for kind in JobType if kind.process]


class DefinitionPart(BaseModel):
    """Base of the models: nothing is converted silently, nothing unknown is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class ParamInput(DefinitionPart):
    """A parameter of the workflow."""

    type: Annotated[ParamType, Lax] = ParamType.STRING
    default: Annotated[Any, FREE] = Field(None, description="Default value.")
    required: bool = Field(False, description="Whether every run must set it.")
    choices: Annotated[list[Any], Field(min_length=1)] | None = Field(None, description="The only values allowed.")
    secret: bool = Field(False, description="Whether its values are secrets: encrypted, and masked in logs.")
    description: str = ""


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


class RetentionInput(DefinitionPart):
    """How long ended runs are kept; at least one."""

    age: Timeout | None = Field(None, description="Runs that ended longer ago are removed.")
    runs: Count | None = Field(None, description="How many of the newest runs are kept.")
    bytes: Size | None = Field(None, description="Total size of runs and logs.")


class GrantInput(DefinitionPart):
    """A role for the steps of a workflow; without workflows and labels, for all workflows and the daemon itself."""

    role: Annotated[GrantRole, Lax] = Field(description="viewer, operator, editor or admin.")
    workflows: Annotated[list[WorkflowPattern], Field(min_length=1)] | None = Field(
        None, description="For the workflows and jobs with these names, or patterns such as nightly-*."
    )
    labels: Annotated[Labels, Field(min_length=1)] | None = Field(
        None, description="For the workflows and jobs with all of these labels."
    )


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


class ScheduleInput(DefinitionPart):
    """A schedule: exactly one of cron, every, at and when, with its options."""

    cron: CronText | None = Field(
        None, description="As in crontab(5); six fields put the seconds first; @daily, @reboot, …"
    )
    every: Every | None = Field(None, description="Interval, counted from start, or from when the schedule was stored.")
    at: Moment | None = Field(None, description="Once, at a time with its offset from UTC.")
    when: Words | None = Field(None, description="In words, English or Japanese; read when the definition is stored.")
    timezone: ZoneName | None = Field(None, description="Default: the workflow's.")
    start: Moment | None = Field(None, description="No due times before this.")
    end: Moment | None = Field(None, description="No due times after this.")
    max_occurrences: Count | None = Field(None, description="Maximum number of due times.")
    jitter: Spread = Field(0.0, description="Spreads starts over this much time; constant for one schedule.")
    params: dict[str, Any] = Field(default={}, description="Parameters of its runs.")
    scope: Name | None = Field(None, description="The scope of its runs, one of the workflow's scopes.")
    calendar: CalendarInput | None = Field(
        None, description="Says which days are business days: a country, a file, or its own; default: the workflow's."
    )
    business_day: BusinessDay | None = Field(
        None,
        description="Only on business days, or moved to the next or previous one, or never on one; a number: only on "
        "that business day of the month. Default with a calendar: only.",
    )
    misfire: Annotated[Misfire, Lax] = Field(
        Misfire.RUN_ONCE,
        description="Due times missed while the daemon was down: skip, run_once or run_all.",
    )
    misfire_grace: Duration = Field(
        DEFAULT_MISFIRE_GRACE, description="Due times missed by more than this are not caught up."
    )
    gap: Annotated[Gap, Lax] = Field(Gap.SHIFT, description="Local times skipped by a clock change: shift or skip.")
    fold: Annotated[Fold, Lax] = Field(Fold.ONCE, description="Local times repeated by a clock change: once or both.")


_Schedules = (
    CronText | ScheduleInput | Annotated[list[CronText | ScheduleInput], Field(min_length=1, max_length=MOST_SCHEDULES)]
)


class DebounceInput(DefinitionPart):
    """One run for a burst of events."""

    quiet: PaceTime = Field(description="How long no event must come.")
    max_wait: PaceTime | None = Field(None, description="The run starts so long after the first event at the latest.")


class ThrottleInput(DefinitionPart):
    """A limit on runs in some time."""

    limit: Annotated[int, Field(ge=1, le=MOST_STARTS)] = Field(1, description="Largest number of runs.")
    per: PaceTime = Field(description="The time.")


class TriggerInput(DefinitionPart):
    """Events that start it."""

    event: EventType | Annotated[list[EventType], Field(min_length=1, max_length=MOST_TYPES)] | None = Field(
        None, description="An event type, or a list of types."
    )
    condition: Condition | None = Field(None, description="Expression over event that must be true.")
    priority: Priority | None = Field(None, description="Priority of the runs it starts; default: the workflow's.")
    scope: Name | None = Field(None, description="The scope of the runs it starts, one of the workflow's scopes.")
    debounce: PaceTime | DebounceInput | None = Field(
        None, description="One run for a burst of events, once no event came for this long; event is the last one."
    )
    throttle: PaceTime | ThrottleInput | None = Field(
        None, description="At most one run in this time, or at most limit runs per time; other events start none."
    )
    key: EventKey | None = Field(
        None,
        description="A field of the event, such as event.payload.id: debounce and throttle count each value alone.",
    )


_Triggers = (
    EventType | TriggerInput | Annotated[list[EventType | TriggerInput], Field(min_length=1, max_length=MOST_TRIGGERS)]
)


class WatchInput(DefinitionPart):
    """A file or a directory whose changes are events."""

    path: WatchedPath = Field(description="A file, or a directory with everything below it.")
    settle: Duration = Field(
        DEFAULT_SETTLE, description="Time without a change after which a file counts as complete; 0s: do not wait."
    )


_Watches = (
    WatchedPath | WatchInput | Annotated[list[WatchedPath | WatchInput], Field(min_length=1, max_length=MOST_WATCHED)]
)


class TriggerScheduleInput(ScheduleInput):
    """A schedule within triggers: exactly one of cron, interval, every, at and when, with its options."""

    interval: Milliseconds | None = Field(None, description="Interval in milliseconds.")


class TriggersInput(TriggerInput):
    """The events and the schedule that start it; at least one of them."""

    schedule: (
        CronText
        | TriggerScheduleInput
        | Annotated[list[CronText | TriggerScheduleInput], Field(min_length=1, max_length=MOST_SCHEDULES)]
        | None
    ) = Field(None, description="When it starts by itself: a crontab expression, a mapping, or a list.")
    priority: Priority | None = Field(None, description="Priority of the runs it starts, and the workflow's default.")


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


class JobInput(WorkInput):
    """A job: a step to be used by name, or to be run alone; its key is its id."""

    id: Name | None = Field(None, description="The same as its key.")
    wait: WaitInput | None = Field(None, description="What it waits for; short for job_type: wait.")
    name: Text | None = Field(None, description="Shown to people.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    labels: Labels = {}
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    schedule: _Schedules | None = Field(
        None, description="When it starts by itself: a crontab expression, a mapping, or a list."
    )
    timezone: ZoneName | None = Field(None, description="Of its schedules; default: the daemon's.")
    calendar: CalendarInput | None = Field(None, description="Of its schedules; default: the daemon's.")
    on: _Triggers | None = Field(None, description="Events that start it: a type, a mapping, or a list.")
    triggers: TriggersInput | None = Field(None, description="Schedule and events in one mapping, instead of both.")


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


_Steps = Annotated[dict[Name, StepInput], Field(min_length=1)] | Annotated[list[ListedStepInput], Field(min_length=1)]
_FinallySteps = StepInput | _Steps


class WorkflowInput(DefinitionPart):
    """A Toban workflow."""

    id: Name | None = Field(None, description="Unique id of the workflow; default: the name.")
    name: Text | None = Field(None, description="Unique id of the workflow; its title, if there is an id.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    version: Version = Field("1", description="Version of the format.")
    description: str = ""
    labels: Labels = {}
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    schedule: _Schedules | None = Field(
        None, description="When it starts by itself: a crontab expression, a mapping, or a list."
    )
    timezone: ZoneName | None = Field(None, description="Of its schedules and blackouts; default: the daemon's.")
    calendar: CalendarInput | None = Field(None, description="Of its schedules; default: the daemon's.")
    blackout: Annotated[list[Window], Field(min_length=1)] | None = Field(
        None, description='Windows in which schedules start no runs, such as "0 2 * * sun/2h".'
    )
    on: _Triggers | None = Field(None, description="Events that start it: a type, a mapping, or a list.")
    triggers: TriggersInput | None = Field(None, description="Schedule and events in one mapping, instead of both.")
    watch: _Watches | None = Field(
        None,
        description="Files and directories whose changes are FILE_CHANGED events; "
        "relative ones start at the base directory.",
    )
    params: dict[Annotated[str, AfterValidator(check_param_name)], ParamInput] = {}
    env: Env = Field(default={}, description="Environment of every step.")
    env_file: EnvFiles | None = Field(
        None, description="Files with environment variables of every step, in dotenv format; env wins over them."
    )
    timeout: Timeout | None = Field(None, description="Of the whole run, from its start.")
    concurrency: Count | None = Field(None, description="Steps of one run at the same time.")
    max_active_runs: Count = Field(1, description="Runs of this workflow at the same time.")
    overlap: Annotated[Overlap, Lax] = Field(
        Overlap.SKIP,
        description="What happens to a run beyond max_active_runs: skip refuses it, queue makes it wait, "
        "replace cancels the oldest, allow ignores the limit.",
    )
    priority: Priority = Field(0, description="Order in the queue: higher runs first.")
    retention: RetentionInput | None = Field(None, description="How long ended runs are kept.")
    locks: Locks | None = Field(
        None, description="Locks that each run holds from its start to its end; it waits until it gets all of them."
    )
    grants: list[GrantInput] = Field(
        default=[], description="What its steps may do beyond their own runs; its author needs at least the same role."
    )
    context_dir: ContextDir = Field("", description="Where artifacts go; default: a directory of the run.")
    scopes: dict[Name, Annotated[list[str], Field(min_length=1)]] = Field(
        default={}, description="Named subsets of the steps, for partial runs."
    )
    defaults: DefaultsInput | None = None
    steps: _Steps = Field(description="A mapping ordered by depends_on, or a list that runs in order.")
    finally_: _FinallySteps | None = Field(
        None, alias="finally", description="Steps that run when all others have ended, whatever happened."
    )
    finally_timeout: Timeout = Field(DEFAULT_FINALLY_TIMEOUT, description="Of all finally steps together.")
    on_success: _FinallySteps | None = Field(None, description="Finally steps of a run that succeeded.")
    on_failure: _FinallySteps | None = Field(None, description="Finally steps of a run that failed or timed out.")
    on_cancel: _FinallySteps | None = Field(None, description="Finally steps of a run that was cancelled.")


class JobsInput(DefinitionPart):
    """A document of Toban jobs."""

    version: Version = Field("1", description="Version of the format.")
    jobs: Annotated[dict[Name, JobInput], Field(min_length=1)] = Field(
        description="Jobs by their ids, which they share with workflows."
    )
