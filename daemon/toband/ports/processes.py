"""Launching attempts, stopping them, and metering their resource use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from toban.definition import Resources, StepSandbox
from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.run_events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretMaterial:
    """What a step gets with values of secrets in it. It goes to the supervisor alone, and never to a disk."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of the launch; they win."""
    stdin: str | None = None
    """Instead of the standard input of the launch."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files by name, in the directory that $TOBAN_SECRET_FILES of the step names. They end with the attempt."""
    masked: Collection[str] = ()
    """The values that the log and the results of the step show as `***`: those with 6 characters or more."""

    def __repr__(self) -> str:
        """Of the amounts only: representations end up in logs and error texts."""
        return f"SecretMaterial(env={len(self.env)}, files={len(self.files)}, masked={len(self.masked)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start, at most once per token."""

    attempt: Attempt
    argv: Sequence[str]
    env: Mapping[str, str]
    workspace: str
    timeout: float | None
    timeout_cause: TreeCause
    kill_grace: float
    env_files: Sequence[tuple[str, bool]] = ()
    """Absolute paths of files with further variables, and whether they may be missing. Later ones win."""
    env_replaced: Collection[str] = ()
    """Variables of `env` that these files may replace; the others win."""
    env_allowed: Sequence[str] | None = None
    env_denied: Sequence[str] = ()
    """Patterns of the names that these files may set, None: any; and may not set."""
    idle_timeout: float | None = None
    """Seconds without output after which it is ended."""
    user: str = ""
    setuid_programs: bool = False
    """Whether a step of another user may gain privileges with them, `sudo` for one."""
    no_new_privileges: bool = False
    apart: bool = False
    """Whether its user must not be a member of the daemon's group."""
    sandbox: StepSandbox | None = None
    resources: Resources | None = None
    stdin: str | None = None
    """The standard input of the step; None: empty."""
    command: str = ""
    """The command as it runs, for its record; without values of the environment."""
    title: str = ""
    """What the supervisor of the process is called in `ps`."""
    log_limit: int | None = None
    """Bytes of output that are kept; further output is counted and dropped."""
    secrets: SecretMaterial | None = None

    @property
    def confined(self) -> bool:
        """Whether its process differs in more than its command from the daemon's."""
        return bool(self.user or self.no_new_privileges or self.resources is not None or self.sandbox is not None)


class Report(Protocol):
    """Takes the launcher's events about an attempt of a run. Called in the event loop."""

    def __call__(self, run_id: str, event: Event) -> None: ...


class Launcher(Protocol):
    """Starts processes, stops them, and reports their ends. They outlive the launcher."""

    async def open(self, report: Report) -> None: ...

    async def close(self) -> None:
        """Detaches from the processes, which continue."""
        ...

    async def prepare(self, run_id: str, params: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> None:
        """Creates the directories and files that a run's attempts need. Idempotent. Raises OSError.

        `event` is the one that started the run.
        """
        ...

    def launch(self, launch: Launch) -> None:
        """Starts it and returns at once; AttemptStarted (unless it ends at once) and the end come as reports."""
        ...

    def stop(self, attempt: Attempt) -> None:
        """Requests the end of an attempt. Idempotent, and harmless if the attempt has ended."""
        ...

    async def recover(self, attempt: Attempt) -> Event | None:
        """After a restart: None if the attempt is alive and watched again, else the event that ended it."""
        ...

    async def recorded_end(self, attempt: Attempt) -> Event | None:
        """The event that its end record says; None if there is none. Looks for no process. Raises OSError."""
        ...

    def settle(self, token: str) -> None:
        """The database has the end of the attempt with that token: files that prove it may be removed."""
        ...

    def settle_others(self, active: Collection[str]) -> None:
        """Once after a restart: the same for all earlier attempts except those with these tokens."""
        ...

    def any_alive(self, pids: Collection[int]) -> bool:
        """Whether a process with one of these ids exists on this machine."""
        ...

    def running(self) -> int:
        """The number of live attempts."""
        ...


class MeterReading(NamedTuple):
    """The resource use of a process tree. Times and bytes count from its start; None where not available."""

    cpu_time: float
    rss_bytes: int
    processes: int
    read_bytes: int | None
    written_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonUse:
    """What the daemon itself uses: `cpu` cores in the last seconds, and `cpu_time` seconds since its start."""

    cpu: float
    cpu_time: float
    rss_bytes: int


class OwnMeter(Protocol):
    """Measures the daemon itself."""

    def read(self) -> DaemonUse: ...


class Meter(Protocol):
    """Measures live attempts from outside, by attempt id."""

    def live(self) -> Collection[str]: ...

    async def read(self, attempt_ids: Collection[str]) -> Mapping[str, MeterReading]:
        """The readings of those that are still alive."""
        ...
