"""Versions of workflows that are applied again while events arrive."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from hashlib import sha256

from faults.emitters import Applied, Told
from faults.event_outcome import Outcome, payload_of
from faults.listeners import DEFINITION_CHANGED, Listening


def check_versions(workflows: Mapping[str, Listening], told: Told, outcome: Outcome) -> Iterator[str]:
    """Each applied text is one version, has one event, and is the version of the events after it."""
    applied: dict[str, list[Applied]] = defaultdict(list)
    for each in told.applied:
        applied[each.workflow].append(each)
    expected: Counter[tuple[str, int]] = Counter()
    for name, workflow in workflows.items():
        texts = [workflow.definition(), *(each.source for each in applied[name])]
        if outcome.versions[name] != [sha256(text.encode()).hexdigest() for text in texts]:
            count = len(outcome.versions[name])
            yield f"{name} has {count} versions, which are not the {len(texts)} that were applied"
        for number, each in enumerate(applied[name], 2):
            expected[name, number] += 1
            if each.version != number:
                yield f"version {number} of {name} was acknowledged as {each.version}"
    found = Counter(
        (payload["data"]["name"], payload["data"]["version"])
        for payload in map(payload_of, outcome.of(DEFINITION_CHANGED))
        if payload["action"] == "updated"
    )
    yield from (f"a new version is not told: {each}" for each in expected - found)
    yield from (f"a version is told too often: {each}" for each in found - expected)
    yield from _check_runs(applied, outcome)


def _check_runs(applied: Mapping[str, list[Applied]], outcome: Outcome) -> Iterator[str]:
    """No run has a version that was not asked for yet, or one before that which was acknowledged already."""
    for event in outcome.events:
        came, decided = (at.ToMicroseconds() / 1e6 for at in (event.emitted_at, event.resolved_at))
        for row in event.runs:
            run = outcome.runs.get(row.run_id)
            if run is None:
                continue
            versions = applied.get(run.workflow, [])
            # A run of a burst is made when that ends.
            made = max(decided, run.created_at.ToMicroseconds() / 1e6)
            least = 1 + sum(each.answered < came for each in versions)
            most = 1 + sum(each.asked < made for each in versions)
            if not least <= run.version <= most:
                yield f"run {run.id} of {run.workflow} has version {run.version}, not {least} to {most}"
