"""An attempt that has a shim or waits for one, and what its end means together with what the daemon did itself."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX launcher needs a spawner")

import asyncio
import json
import os
import signal
import socket
from dataclasses import dataclass, field, replace

from toband import failpoints
from toband.domain.attempt_model import Attempt, Orphans, TreeCause
from toband.domain.run_events import AttemptEnded, Event
from toband.supervise.launch import unresponsive_shims
from toband.supervise.launch.end_record import Claim
from toband.supervise.launch.unresponsive_shims import Duty

_ENDING = 10.0 + 30.0
"""Seconds to end a step if the claim does not say."""


@dataclass(slots=True, eq=False)
class LiveAttempt:
    """An attempt that waits for a shim (`message` is its bootstrap), or has one (`pidfd` is the shim's)."""

    attempt: Attempt
    message: str | None = None
    """As JSON, all but the timeout."""
    timeout: float | None = None
    deadline: float | None = None
    """The run's, or that of a loop, by the event loop's clock."""
    pid: int = 0
    pidfd: int = -1
    sock: socket.socket | None = None
    ours: bool = True
    exited: bool = False
    claimed: bool = False
    """The shim has the claim: the step may have started, even if the file is missing later."""
    duty: Duty = field(default_factory=lambda: Duty(_ENDING))
    cause: TreeCause = TreeCause.TIMEOUT
    """Of `timeout`."""
    timer: asyncio.TimerHandle | None = None

    def time_left(self, now: float) -> float | None:
        """Until its timeout, which passes also while it waits if it is the run's or that of a loop."""
        return self.timeout if self.deadline is None else max(0.0, self.deadline - now)

    def bootstrap_file(self, now: float) -> int:
        """Its message in a memory file that only the shim will read. Raises OSError."""
        assert self.message is not None
        message = f'{self.message[:-1]}, "timeout": {json.dumps(self.time_left(now))}}}'
        failpoints.hit("launch.message")
        fd = os.memfd_create("toban-bootstrap", os.MFD_CLOEXEC)
        try:
            left = memoryview(message.encode())
            while left:
                left = left[os.write(fd, left) :]
        except OSError:
            os.close(fd)
            raise
        return fd


def duty_of(claim: Claim | None) -> Duty:
    """The deadlines of a shim of an earlier daemon, from its claim."""
    if claim is None or claim.ending is None:
        return Duty(_ENDING + unresponsive_shims.SLACK)
    duty = Duty(claim.ending + unresponsive_shims.SLACK)
    # The clock of the boot is the one of the event loop.
    duty.begins(0.0, claim.over, claim.timeout_cause)
    return duty


def corrected(duty: Duty, event: Event) -> Event:
    """Corrects an end record if the daemon ended the step for its shim, which saw only an unexplained KILL."""
    if not duty.forced or not isinstance(event, AttemptEnded):
        return event
    if event.ending.cause is not TreeCause.EXITED or event.signal != signal.SIGKILL:
        return event
    signals = (*event.ending.signals, "KILL")
    ending = replace(event.ending, cause=duty.cause, by_daemon=True, signals=signals)
    return replace(event, ending=ending)


def known_orphans(by_cgroup: Orphans, by_spawner: Orphans) -> Orphans:
    """What happened to the processes of a dead shim, from the cgroup and from the spawner."""
    if by_cgroup is Orphans.UNKNOWN:
        return by_spawner
    return Orphans.ENDED if by_cgroup is Orphans.NONE and by_spawner is Orphans.ENDED else by_cgroup
