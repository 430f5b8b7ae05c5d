"""What one file defines: read, checked, and stored whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from toban.definition import DefinitionKind, Document, JobType, Parsed, Problem, parse
from toban.definition.checks.never_due import run_out
from toband.engine.definitions.catalog import until_undisturbed
from toband.engine.definitions.definition_parser import DefinitionParser, is_small
from toband.engine.definitions.resolver import Resolver
from toband.engine.errors import InvalidDefinitionError, RefusedError, WorkflowRecursionError
from toband.engine.health.admission import Admits
from toband.ports import (
    BY_API,
    Clock,
    ConflictError,
    Mark,
    PutOutcome,
    Store,
    WorkflowExistsError,
    WorkflowOwnedError,
    WorkflowText,
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

    @property
    def uses_jobs(self) -> bool:
        return any(document.uses for document in self.documents)


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
    """Stores what files define."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        admission: Admits,
        zone: str,
        parser: DefinitionParser,
        refusal: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`refusal` says for an absolute path why no step may work there."""
        self._store = store
        self._clock = clock
        self._admission = admission
        self._resolver = Resolver(store, clock, zone, parser, refusal)

    async def keep(self, file: ReadFile, take_over: Mapping[str, str]) -> Kept:
        """All of it, or nothing. `take_over` has, by name, who may lose a definition to this file.

        Raises UnusableFileError, StoreError.
        """
        try:
            return await until_undisturbed(lambda: self._keep(file, take_over))
        except InvalidDefinitionError as error:
            wrong = [str(each) for each in error.problems if not each.warning]
            raise UnusableFileError(wrong) from None
        except (WorkflowRecursionError, RefusedError) as error:
            raise UnusableFileError([f"{file.path}: {error}"]) from None
        except ConflictError as error:
            text = f"{file.path}: {error.args[0]} was changed meanwhile, more than once"
            raise UnusableFileError([text]) from None
        except WorkflowExistsError as error:
            raise UnusableFileError([_exists(file, error)]) from None
        except WorkflowOwnedError as error:
            raise UnusableFileError([_owned(file, error)]) from None

    async def _keep(self, file: ReadFile, take_over: Mapping[str, str]) -> Kept:
        texts, warnings = await self._resolve(file)
        changed = {
            text.name: text.source
            for text in texts
            if text.kind is DefinitionKind.JOB and not await self._resolver.is_stored(text)
        }
        try:
            users = await self._resolver.users(changed, but=file.names)
        except InvalidDefinitionError as error:
            found = [replace(each, file=file.path) for each in error.problems]
            raise InvalidDefinitionError(found) from None
        also = [user.text for user in users]
        if texts:
            await self._resolver.check_children([*texts, *also])
        self._admission.check(f"load {file.path}")
        at = self._clock.now()
        outcomes = await self._store.put_definitions(texts, at=at, also=also, take_over=take_over)
        return Kept(outcomes=outcomes, warnings=tuple(str(each) for each in warnings), at=at)

    async def _resolve(self, file: ReadFile) -> tuple[list[WorkflowText], list[Problem]]:
        """Raises InvalidDefinitionError with what is wrong with any of the documents."""
        directory = os.path.dirname(file.path)
        jobs = {document.name: document.source for document in file.documents if document.kind is DefinitionKind.JOB}
        texts: list[WorkflowText] = []
        warnings: list[Problem] = []
        problems: list[Problem] = []
        for document in file.documents:
            try:
                if not file.uses_jobs:
                    texts.append(await self._resolver.take(document, directory))
                    continue
                made = await self._resolver.resolve(
                    document.source, directory, document.kind, instead=jobs, likely=document.uses
                )
            except InvalidDefinitionError as error:
                problems += [_placed(file, document, each) for each in error.problems]
                continue
            texts.append(made.text)
            warnings += [_placed(file, document, each) for each in made.warnings]
        if problems:
            raise InvalidDefinitionError(problems)
        texts = [replace(text, owner=file.path) for text in texts]
        if not file.uses_jobs:
            # What was read without jobs was read for good; what time it is nobody knew there.
            now = self._clock.now()
            over = [each for document in file.documents for each in run_out(document, file.path, now)]
            warnings = [*file.warnings, *over]
        return texts, warnings


def _placed(file: ReadFile, document: Document, problem: Problem) -> Problem:
    """A problem of one document, at its place in the file."""
    line = document.line + max(problem.line, 1) - 1
    return replace(problem, file=file.path, line=line)


def _exists(file: ReadFile, error: WorkflowExistsError) -> str:
    kind, name = error.kind.value, str(error.args[0])
    text = f"{file.path}: there is a {kind} {name!r} already, which cannot become another kind"
    return f"{text}; delete it first: toban {kind}s delete {name} --force"


def _owned(file: ReadFile, error: WorkflowOwnedError) -> str:
    name = str(error.args[0])
    if error.owner == BY_API:
        return f"{file.path}: {name!r} was stored over the API before; delete it first"
    return f"{file.path}: {name!r} belongs to {error.owner}, which cannot be read now"
