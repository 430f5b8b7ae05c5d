"""What one file defines: read, checked, and stored whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from toban.definition import DefinitionKind, Document, JobType, Parsed, Problem, parse
from toband.engine.definitions.applier import Applier, ApplyPlan
from toband.engine.definitions.definition_parser import DefinitionParser, is_small
from toband.engine.definitions.resolver import ParsedText
from toband.engine.errors import InvalidDefinitionError, RefusedError, WorkflowRecursionError
from toband.ports import (
    BY_API,
    ConflictError,
    Mark,
    PutOutcome,
    WorkflowExistsError,
    WorkflowOwnedError,
)


class UnusableFileError(Exception):
    """Nothing of a file was stored; `problems` are lines for people, `cause` is what nobody expected."""

    def __init__(self, problems: Sequence[str], cause: Exception | None = None) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.cause = cause


BREATH = 0.0002
"""Seconds after each file in which others get to work: reading one is plain computing, for which they would wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """The content of a file. `known` is the digest of what needs no reading, if there is such."""

    path: str
    mark: Mark | None
    data: bytes
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """What was found in a file. With `problems` nobody can tell what it defines; one that is `known` was not read.

    `cause` is what nobody expected, if that was in the way.
    """

    path: str
    mark: Mark | None
    digest: str = ""
    documents: Sequence[Document] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    known: bool = False
    cause: Exception | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(document.name for document in self.documents)

    @property
    def has_jobs(self) -> bool:
        return any(document.kind is DefinitionKind.JOB for document in self.documents)

    @property
    def plain(self) -> bool:
        """Whether it has workflows that stand for themselves and nothing else: no jobs, none of others, no children."""
        return all(
            document.kind is DefinitionKind.WORKFLOW
            and document.workflow is not None
            and not document.uses
            and all(step.job_type is not JobType.WORKFLOW for step in document.workflow.steps.values())
            for document in self.documents
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What became of the definitions of a file, by name and at that time, and what is worth knowing about them."""

    outcomes: Mapping[str, PutOutcome]
    warnings: tuple[str, ...]
    at: datetime


class FileReader:
    """Finds out what files define, as far as it can be told without the jobs that they use. Raises nothing."""

    def __init__(self, parser: DefinitionParser) -> None:
        self._parser = parser
        self._wrong: dict[str, ReadFile] = {}
        """By path, files that took long and have problems: as long as they stay as they are, so do the problems."""
        self._tasks: dict[str, tuple[str, asyncio.Task[Parsed]]] = {}
        """By path, what is being read now, with the digest of its text."""

    async def quick(self, files: Sequence[Unread]) -> tuple[Sequence[ReadFile], Sequence[Unread]]:
        """What is known or quickly read; those that may take long are left."""
        return await self._parser.in_thread(lambda: understand(files))

    async def slow(self, file: Unread, within: float | None = None) -> ReadFile | None:
        """One that may take long; None if it takes longer than that many seconds: it is read on, and asked for again.

        It may be ended, and is then a file with a problem.
        """
        digest = _digest(file.data)
        before = self._wrong.get(file.path)
        if before is not None and before.digest == digest:
            return replace(before, mark=file.mark)
        task = self._task_of(file, digest)
        await asyncio.wait([task], timeout=within)
        if not task.done():
            return None
        del self._tasks[file.path]
        try:
            found = _found(file, digest, task.result())
        except Exception as error:
            return _failed(file, error)
        if found.problems:
            self._wrong[file.path] = found
        return found

    def _task_of(self, file: Unread, digest: str) -> asyncio.Task[Parsed]:
        reading = self._tasks.get(file.path)
        if reading is not None and reading[0] == digest:
            return reading[1]
        self.forget(file.path)
        task = asyncio.ensure_future(self._parser.parse(file.data, file.path))
        self._tasks[file.path] = digest, task
        return task

    def forget(self, path: str) -> None:
        """The file has changed, or is gone: what is known of it and what is still being read is not asked for."""
        self._wrong.pop(path, None)
        if (reading := self._tasks.pop(path, None)) is not None:
            reading[1].cancel()

    def close(self) -> None:
        for path in list(self._tasks):
            self.forget(path)


def understand(files: Sequence[Unread]) -> tuple[Sequence[ReadFile], Sequence[Unread]]:
    """What is known or quickly read, and the rest, which may take long. For a thread. Raises nothing."""
    found: list[ReadFile] = []
    left: list[Unread] = []
    for file in files:
        if (file.known and file.known == _digest(file.data)) or is_small(file.data):
            found.append(_tried(file))
        else:
            left.append(file)
    return found, left


def unexpected(path: str, error: Exception) -> UnusableFileError:
    """An error of ours, as a problem of the file that met it: the others have nothing to do with it."""
    text = f"{path}: internal error {type(error).__name__}: {error}: please report it"
    return UnusableFileError([text], cause=error)


def _tried(file: Unread) -> ReadFile:
    try:
        return _understood(file)
    except Exception as error:
        return _failed(file, error)


def _failed(file: Unread, error: Exception) -> ReadFile:
    problems = unexpected(file.path, error).problems
    return ReadFile(path=file.path, mark=file.mark, problems=problems, cause=error)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _understood(file: Unread) -> ReadFile:
    digest = _digest(file.data)
    if digest == file.known:
        return ReadFile(path=file.path, mark=file.mark, digest=digest, known=True)
    parsed = parse(file.data, file.path)
    time.sleep(BREATH)
    return _found(file, digest, parsed)


def _found(file: Unread, digest: str, parsed: Parsed) -> ReadFile:
    wrong = tuple(str(problem) for problem in parsed.errors)
    return ReadFile(
        path=file.path,
        mark=file.mark,
        digest=digest,
        documents=() if wrong else parsed.documents,
        problems=wrong,
        warnings=parsed.warnings,
    )


class Loader:
    """Stores the definitions of files."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier

    async def keep(self, file: ReadFile, take_over: Mapping[str, str]) -> Kept:
        """Stores all definitions of a file, or none. `take_over`: by name, the owner that may lose it to this file.

        Raises UnusableFileError, StoreError.
        """
        text = ParsedText(
            file=file.path, base_dir=os.path.dirname(file.path), documents=file.documents, problems=file.warnings
        )

        async def save(plan: ApplyPlan) -> Kept:
            at = self._applier.clock.now()
            texts = [replace(each, owner=file.path) for each in plan.texts]
            put = await self._applier.store.put_definitions(texts, at=at, also=plan.also, take_over=take_over)
            outcomes = {name: result.outcome for name, result in put.items()}
            return Kept(outcomes=outcomes, warnings=tuple(map(str, plan.warnings)), at=at)

        try:
            return await self._applier.apply(f"load {file.path}", [text], save, children_may_follow=True)
        except InvalidDefinitionError as error:
            raise UnusableFileError([str(each) for each in error.problems if not each.warning]) from None
        except (WorkflowRecursionError, RefusedError) as error:
            raise UnusableFileError([f"{file.path}: {error}"]) from None
        except ConflictError as error:
            raise UnusableFileError([f"{file.path}: {error.args[0]} was changed meanwhile, more than once"]) from None
        except WorkflowExistsError as error:
            raise UnusableFileError([_exists(file, error)]) from None
        except WorkflowOwnedError as error:
            raise UnusableFileError([_owned(file, error)]) from None


def _exists(file: ReadFile, error: WorkflowExistsError) -> str:
    kind, name = error.kind.value, str(error.args[0])
    text = f"{file.path}: there is a {kind} {name!r} already, which cannot become another kind"
    return f"{text}; delete it first: toban {kind}s delete {name} --force"


def _owned(file: ReadFile, error: WorkflowOwnedError) -> str:
    name = str(error.args[0])
    if error.owner == BY_API:
        return f"{file.path}: {name!r} was stored over the API before; delete it first"
    return f"{file.path}: {name!r} belongs to {error.owner}, which cannot be read now"
