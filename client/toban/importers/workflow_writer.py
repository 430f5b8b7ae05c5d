"""Writes drafts as files, and compares their due times with the original's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice
from zoneinfo import ZoneInfo

from toban.definition import Schedule, parse
from toban.definition.source.yaml_writer import yaml_text
from toban.definition.timing.cron import REBOOT
from toban.definition.timing.due import occurrences
from toban.importers.import_model import ImportProblem, WorkflowDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenWorkflow:
    """A draft as text that was parsed again, with its next times: the original's (None: unknown), and its own."""

    draft: WorkflowDraft
    text: str
    theirs: list[datetime] | None
    ours: list[datetime]

    @property
    def same(self) -> bool | None:
        """Whether it fires at the same moments; None if that is unknown."""
        return None if self.theirs is None else self.theirs == self.ours


def written(draft: WorkflowDraft, *, after: datetime, count: int) -> WrittenWorkflow:
    """Raises ImportProblem if the workflow would be invalid."""
    text = _text(draft)
    parsed = parse(text, file=f"{draft.name}.yaml")
    if not parsed.ok or parsed.documents[0].workflow is None:
        problems = "; ".join(f"{p.path}: {p.message}" for p in parsed.errors)
        raise ImportProblem(f"the imported workflow is invalid: {problems}")
    known = [s for s in parsed.documents[0].workflow.schedules if s.cron != REBOOT]
    if draft.theirs is not None:
        # The due times of intervals cannot be known in advance on the other side.
        known = [s for s in known if s.every is None]
    theirs = None if draft.theirs is None else draft.theirs(after, count)
    return WrittenWorkflow(draft=draft, text=text, theirs=theirs, ours=_times(known, draft, after, count))


def _times(schedules: Sequence[Schedule], draft: WorkflowDraft, after: datetime, count: int) -> list[datetime]:
    def of(schedule: Schedule) -> Iterator[datetime]:
        zone = ZoneInfo(schedule.timezone) if schedule.timezone else draft.zone
        dues = occurrences(schedule, zone=zone, after=after, stored_at=after)
        return (due.at for due in islice(dues, count))

    found: list[datetime] = []
    # The same moment in two schedules counts once: a timer fires once, and so would `overlap: skip`.
    for at in merge(*map(of, schedules)):
        if at not in found[-1:]:
            found.append(at)
    return found[:count]


def _text(draft: WorkflowDraft) -> str:
    comments = "".join(f"# {' '.join(comment.split())}\n" for comment in draft.comments)
    return comments + yaml_text(draft.document)
