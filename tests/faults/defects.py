"""Defects of a history, and the circumstances that excuse them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from faults.history import AttemptOnDisk
from toban.v1 import run_pb2


class Kind(Enum):
    """What can be wrong."""

    MISSING = "an acknowledged run is missing"
    UNASKED = "a run that nobody asked for"
    CONTRADICTED = "what was told before is denied"
    UNENDED = "a run did not end"
    DOUBLED = "a step was executed more often than it may be"
    SKIPPED = "a step that should have run did not"
    UNTRUE = "a state is not what happened"
    EARLY_OR_LATE = "a timeout did not hold"
    ORDER = "a step ran before its time"
    LOST = "an attempt is lost without a reason"
    LOG = "a log is not what the step wrote"
    ARTIFACT = "an artifact is not what the step made"
    LETTER = "a dead letter is missing, or is one too many"
    LEFT = "a process is left"
    LOCK = "a lock had more holders than it may have"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.kind.value}: {self.text}"


Excuse = Callable[[run_pb2.ProcessExecution, AttemptOnDisk | None], str]
"""Why an attempt must not be what it is; empty if it may."""


Unkept = Callable[[run_pb2.ProcessExecution, run_pb2.Step], str]
"""Why a step must not have failed whose process succeeded; empty if what it made could not be kept."""


def never(_execution: run_pb2.ProcessExecution, _file: AttemptOnDisk | None) -> str:
    return "nothing happened that could explain it"


def always_kept(_execution: run_pb2.ProcessExecution, _step: run_pb2.Step) -> str:
    return "nothing happened to what it made"


def report(defects: Sequence[Defect]) -> str:
    """For people: the first ones, and how many there are of each kind."""
    kinds = Counter(defect.kind.name for defect in defects)
    counts = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
    return "\n".join([f"defects: {counts}", *map(str, defects[:20])])
