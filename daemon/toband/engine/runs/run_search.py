"""Run search: finds runs by parameter and by text, in a bounded number of runs at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from toban.definition import to_text
from toband.domain.identity import Visible
from toband.domain.run_model import Run, RunState
from toband.domain.secret_params import is_sealed, shown_params
from toband.ports import RunStore

EXAMINED = 5000
"""Runs that one page examines at most."""
_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """Conditions that the store answers from indexes; those that are empty match every run.

    `after` and `before` are ids, which sort by the time of creation.
    """

    workflow: str = ""
    states: frozenset[RunState] = frozenset()
    parent_run: str = ""
    retry_of: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    before: str = ""
    number: int = 0
    ids: frozenset[str] = frozenset()

    def match(self, run: Run) -> bool:
        """What `RunStore.list_runs` finds with these conditions."""
        return (
            self.workflow in ("", run.workflow)
            and (not self.states or run.state in self.states)
            and self.parent_run in ("", run.parent_run)
            and self.retry_of in ("", run.retry_of)
            and self.labels.items() <= run.labels.items()
            and self.after < run.id
            and (not self.before or run.id < self.before)
            and self.number in (0, run.number)
            and (not self.ids or run.id in self.ids)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """Conditions that no index answers. `params` are values as text; `text` is found in any case."""

    params: Mapping[str, str]
    text: str = ""

    def matches(self, run: Run) -> bool:
        """`run` has all of its parameters."""
        for name, value in self.params.items():
            # A secret cannot be found out by trying values.
            if name not in run.params or is_sealed(run.params[name]) or to_text(run.params[name]) != value:
                return False
        wanted = self.text.casefold()
        return not wanted or any(wanted in text.casefold() for text in _texts(run))


def _texts(run: Run) -> list[str]:
    found = [run.id, run.name, run.scope, run.error]
    found += [f"{label}={content}" for label, content in run.labels.items()]
    return found + [f"{name}={to_text(value)}" for name, value in shown_params(run.params).items()]


class RunSearch:
    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def read(self, wanted: RunConditions, before: str, limit: int, visible: Visible = None) -> Sequence[Run]:
        """At most `limit` runs that meet the conditions, newest first, with an id below `before`."""
        return await self._store.list_runs(
            workflow=wanted.workflow,
            states=list(wanted.states),
            before=before,
            limit=limit,
            parent_run=wanted.parent_run,
            retry_of=wanted.retry_of,
            labels=wanted.labels,
            after=wanted.after,
            number=wanted.number,
            ids=wanted.ids,
            visible=visible,
        )

    async def page(
        self,
        wanted: SearchFilter,
        read: Callable[[str, int], Awaitable[Sequence[Run]]],
        before: str,
        limit: int,
    ) -> tuple[list[Run], str]:
        """At most `limit` matching runs of those that `read` returns below an id, newest first.

        Also the id below which the search continues; empty if no runs are left.
        """
        found: list[Run] = []
        examined = 0
        while examined < EXAMINED:
            some = await read(before, _AT_ONCE)
            for run in some:
                examined += 1
                before = run.id
                if await self.matches(wanted, run):
                    found.append(run)
                    if len(found) == limit:
                        return found, before
            if len(some) < _AT_ONCE:
                return found, ""
        return found, before

    async def matches(self, wanted: SearchFilter, run: Run) -> bool:
        """Whether the run meets the conditions; reads its parameters if `run` leaves them out."""
        return wanted.matches(await self._whole(run))

    async def _whole(self, run: Run) -> Run:
        """The run with its parameters, which lists leave out if they are large."""
        if not run.params_bytes:
            return run
        return await self._store.get_run_page(run.id, limit=0) or run
