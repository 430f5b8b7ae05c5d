"""Reads a definition file and stores all of its definitions, or none."""

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
from toband.engine.definitions.file_changes import audited_change
from toband.engine.definitions.resolver import ParsedText
from toband.engine.errors import InvalidDefinitionError, RefusedError, WorkflowRecursionError
from toband.ports import (
    BY_API,
    ConflictError,
    Mark,
    PutOutcome,
    WorkflowExistsError,
    WorkflowOwnedError,
    auditing,
)


class UnusableFileError(Exception):
    """Nothing of a file was stored. `problems` are for people; `cause` is an unexpected error, if there was one."""

    def __init__(self, problems: Sequence[str], cause: Exception | None = None) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.cause = cause


BREATH = 0.0002
"""Seconds between files, for other threads: parsing holds the interpreter lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """The content of a file. `cached` is the digest of the content that was last loaded, if any."""

    path: str
    mark: Mark | None
    data: bytes
    cached: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A parsed file. With `problems` it has no documents; a `cached` one was not parsed.

    `cause` is an unexpected error, if there was one.
    """

    path: str
    mark: Mark | None
    digest: str = ""
    documents: Sequence[Document] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    cached: bool = False
    cause: Exception | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(document.name for document in self.documents)

    @property
    def has_jobs(self) -> bool:
        return any(document.kind is DefinitionKind.JOB for document in self.documents)

    @property
    def plain(self) -> bool:
        """Whether its workflows are independent of other files: no jobs, no uses of jobs, no children."""
        return all(
            document.kind is DefinitionKind.WORKFLOW
            and document.workflow is not None
            and not document.uses
            and all(step.job_type is not JobType.WORKFLOW for step in document.workflow.steps.values())
            for document in self.documents
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The outcomes of storing a file's definitions, by name, and its warnings."""

    outcomes: Mapping[str, PutOutcome]
    warnings: tuple[str, ...]
    at: datetime


class FileReader:
    """Parses files, without jobs of other files. Raises nothing."""

    def __init__(self, parser: DefinitionParser) -> None:
        self._parser = parser
        self._wrong: dict[str, ReadFile] = {}
        """By path, slow files with problems: the same content has the same problems."""
        self._tasks: dict[str, tuple[str, asyncio.Task[Parsed]]] = {}
        """By path, the running parses, each with the digest of its text."""

    async def quick(self, files: Sequence[FileContent]) -> tuple[Sequence[ReadFile], Sequence[FileContent]]:
        """Files that are cached or quick to parse, and the rest, which may be slow."""
        return await self._parser.in_thread(lambda: parse_quick(files))

    async def slow(self, file: FileContent, within: float | None = None) -> ReadFile | None:
        """A file that may be slow; None after that many seconds: parsing continues, and a later call gets the result.

        A parse that exceeds its limits gives a file with a problem.
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

    def _task_of(self, file: FileContent, digest: str) -> asyncio.Task[Parsed]:
        running = self._tasks.get(file.path)
        if running is not None and running[0] == digest:
            return running[1]
        self.forget(file.path)
        task = asyncio.ensure_future(self._parser.parse(file.data, file.path))
        self._tasks[file.path] = digest, task
        return task

    def forget(self, path: str) -> None:
        """Drops the results and the running parse of a file that has changed or is gone."""
        self._wrong.pop(path, None)
        if (running := self._tasks.pop(path, None)) is not None:
            running[1].cancel()

    def close(self) -> None:
        for path in list(self._tasks):
            self.forget(path)


def parse_quick(files: Sequence[FileContent]) -> tuple[Sequence[ReadFile], Sequence[FileContent]]:
    """Files that are cached or quick to parse, and the rest, which may be slow. Runs in a thread. Raises nothing."""
    found: list[ReadFile] = []
    left: list[FileContent] = []
    for file in files:
        if (file.cached and file.cached == _digest(file.data)) or is_small(file.data):
            found.append(_tried(file))
        else:
            left.append(file)
    return found, left


def unexpected(path: str, error: Exception) -> UnusableFileError:
    """An internal error as a problem of one file, so that it does not affect the others."""
    text = f"{path}: internal error {type(error).__name__}: {error}; please report it"
    return UnusableFileError([text], cause=error)


def _tried(file: FileContent) -> ReadFile:
    try:
        return _parsed(file)
    except Exception as error:
        return _failed(file, error)


def _failed(file: FileContent, error: Exception) -> ReadFile:
    problems = unexpected(file.path, error).problems
    return ReadFile(path=file.path, mark=file.mark, problems=problems, cause=error)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parsed(file: FileContent) -> ReadFile:
    digest = _digest(file.data)
    if digest == file.cached:
        return ReadFile(path=file.path, mark=file.mark, digest=digest, cached=True)
    parsed = parse(file.data, file.path)
    time.sleep(BREATH)
    return _found(file, digest, parsed)


def _found(file: FileContent, digest: str, parsed: Parsed) -> ReadFile:
    wrong = tuple(str(problem) for problem in parsed.errors)
    return ReadFile(
        path=file.path,
        mark=file.mark,
        digest=digest,
        documents=() if wrong else parsed.documents,
        problems=wrong,
        warnings=parsed.warnings,
    )


class FileLoader:
    """Stores the definitions of files."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier

    async def load(self, file: ReadFile, take_over: Mapping[str, str]) -> LoadResult:
        """Stores all definitions of a file, or none. `take_over`: by name, the owner that may lose it to this file.

        Raises UnusableFileError, StoreError.
        """
        text = ParsedText(
            file=file.path, base_dir=os.path.dirname(file.path), documents=file.documents, problems=file.warnings
        )

        async def save(plan: ApplyPlan) -> LoadResult:
            at = self._applier.clock.now()
            texts = [replace(each, owner=file.path) for each in plan.texts]
            with auditing(audited_change(self._applier.clock, file.path)):
                put = await self._applier.store.put_definitions(texts, at=at, also=plan.also, take_over=take_over)
            outcomes = {name: result.outcome for name, result in put.items()}
            return LoadResult(outcomes=outcomes, warnings=tuple(map(str, plan.warnings)), at=at)

        try:
            return await self._applier.apply(f"load {file.path}", [text], save, children_may_follow=True)
        except InvalidDefinitionError as error:
            raise UnusableFileError([str(each) for each in error.problems if not each.warning]) from None
        except (WorkflowRecursionError, RefusedError) as error:
            raise UnusableFileError([f"{file.path}: {error}"]) from None
        except ConflictError as error:
            raise UnusableFileError([f"{file.path}: {error.args[0]} keeps changing; it is tried again"]) from None
        except WorkflowExistsError as error:
            raise UnusableFileError([_exists(file, error)]) from None
        except WorkflowOwnedError as error:
            raise UnusableFileError([_owned(file, error)]) from None


def _exists(file: ReadFile, error: WorkflowExistsError) -> str:
    kind, name = error.kind.value, str(error.args[0])
    text = f"{file.path}: a {kind} {name!r} already exists, and its kind cannot change"
    return f"{text}; delete it first: toban {kind}s delete {name} --force"


def _owned(file: ReadFile, error: WorkflowOwnedError) -> str:
    name = str(error.args[0])
    if error.owner == BY_API:
        return f"{file.path}: {name!r} is already stored over the API; delete it first"
    return f"{file.path}: {name!r} belongs to {error.owner}, which cannot be read"
