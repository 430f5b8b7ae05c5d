"""The real store on SQLite, copied from a template file, and a way to count its calls and make them fail."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Dialect

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from toband.engine.definitions.applier import Applier
from toband.engine.definitions.catalog import Workflows
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.ports import StoredWorkflow
from toband.store import SqlStore
from toband.store.sql import open_database
from toband.store.sql.statements import Statements

NOW = datetime(2026, 2, 1, tzinfo=UTC)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Compiles the statements for each kind of database once: that takes most of the time of opening a store."""
    compiled: dict[str, Statements] = {}

    def statements(dialect: Dialect) -> Statements:
        if dialect.name not in compiled:
            compiled[dialect.name] = Statements(dialect)
        return compiled[dialect.name]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(open_database, "Statements", statements)
        yield


def make_template(path: Path) -> None:
    """Writes a database with all tables: they take long to create."""

    async def create() -> None:
        store = SqlStore(f"sqlite:///{path.as_posix()}")
        await store.open()
        await store.close()

    asyncio.run(create())


async def define(store: SqlStore, source: str, at: datetime = NOW) -> StoredWorkflow:
    """Stores a workflow, with its schedules, triggers and watches, as the API does."""
    applier = Applier(store=store, clock=Clock(at), parser=DefinitionParser(InlineSandbox()))
    stored, _ = await Workflows(applier).create(source, "", None)
    return stored


class FaultyStore:
    """A store whose calls the test makes fail, or answers itself.

    `calls` counts those that have ended, by name; `given` has the first arguments of those that worked.
    """

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._errors: dict[str, Callable[..., Exception | None]] = {}
        self.answers: dict[str, Any] = {}
        self.calls: Counter[str] = Counter()
        self.given: dict[str, list[Any]] = defaultdict(list)

    def fail(self, call: str, error: Exception, *, times: int | None = None) -> None:
        """Raises the error instead of calling: so many times, or until `repair`."""
        errors = repeat(error) if times is None else repeat(error, times)
        self.fail_if(call, lambda *_, **__: next(errors, None))

    def fail_if(self, call: str, failing: Callable[..., Exception | None]) -> None:
        """Raises what `failing` answers to the arguments of a call, if it is an error."""
        self._errors[call] = failing

    def repair(self) -> None:
        self._errors.clear()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with self._counted(name, *args, **kwargs):
                return self.answers[name] if name in self.answers else await method(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._counted(name, *args, **kwargs):
                return method(*args, **kwargs)

        return call_async if inspect.iscoroutinefunction(method) else call

    @contextmanager
    def _counted(self, name: str, *args: Any, **kwargs: Any) -> Iterator[None]:
        failing = self._errors.get(name)
        try:
            if failing is not None and (error := failing(*args, **kwargs)):
                raise error
            yield
            self.given[name] += args[:1]
        finally:
            self.calls[name] += 1
