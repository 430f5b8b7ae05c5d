"""Artifacts: files that a step leaves in its run's context directory and later steps get in their workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toban.definition import Output
from toban.safe_text import sendable
from toband.domain.attempt_model import Attempt
from toband.domain.run_model import Artifact
from toband.masker import Masker


class ArtifactError(Exception):
    r"""An input cannot be placed, or an output not collected; the text says why. Trying again does not help.

    The text has bytes of file names that are not UTF-8 as `\xff`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(sendable(text))


class StoppedError(Exception):
    """The work was interrupted; it may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """The outputs to copy from a step's workspace. Their paths are rendered, and relative to the workspace.

    `folder` is the step's directory in the context directory: `build`, or `build/3` for an instance. With `iteration`
    the copies also go to `<folder>/iteration-<n>/<name>/`; `<folder>/<name>/` always has the latest. Only a `final`
    collection fails if a required output is missing.
    """

    context: str
    folder: str
    workspace: str
    outputs: Sequence[Output]
    iteration: int | None = None
    final: bool = True
    run_id: str = ""
    """The run whose turn the work takes."""
    user: str = ""
    """The user of the step, with whose rights the workspace is read; empty: the daemon's."""
    masker: Masker | None = None
    """For the names of files; their contents are stored as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One input: the file or directory at `source` (absolute) appears at `path`, relative to the workspace.

    `source` None: it is missing, and an empty file, or with `directory` an empty directory, replaces it.
    """

    path: str
    source: str | None
    directory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One file of an artifact; `path` is relative to the artifact's directory."""

    path: str
    bytes: int


class Artifacts(Protocol):
    """Copies and reads artifacts in the background; runs take turns.

    Cancelling a call stops its work. When the daemon stops, unfinished calls raise StoppedError. A crash leaves no
    partial artifacts.
    """

    async def collect(self, what: Collect) -> tuple[Artifact, ...]:
        """Copies outputs, so that later changes of the workspace do not affect them. Idempotent.

        An optional output that is missing is not in the result, and its earlier copy is removed. Raises ArtifactError,
        also for a path that leads out of the workspace, and for outputs above the limits; OSError if the disk fails.
        """
        ...

    async def place(
        self, workspace: str, placements: Sequence[Placement], *, own: bool, run_id: str = "", user: str = ""
    ) -> None:
        """Links files where possible, else copies them. `own`: the workspace is the run's own directory.

        `user`: the user of the step, with whose rights the workspace is used; empty: the daemon's.

        Elsewhere it replaces only files that an earlier run placed there and that have not changed since. Raises
        ArtifactError, OSError.
        """
        ...

    async def adopt(self, context: str, folders: Mapping[str, str], *, run_id: str = "") -> None:
        """Gives a run the artifacts of other runs: by folder (as in Collect), the context directory to take it from.

        Raises ArtifactError if one was deleted.
        """
        ...

    async def fingerprint(self, workspace: str, path: str, *, run_id: str = "", user: str = "") -> str:
        """Changes with the file or directory, which may be missing; read as `place` does. Raises ArtifactError."""
        ...

    async def fingerprint_output(self, attempt: Attempt) -> str:
        """Changes with the standard output of the attempt."""
        ...

    def note(self, context: str, name: str, facts: Mapping[str, Any]) -> None:
        """Writes a small JSON file (`_workflow.json`, `build/_meta.json`) whole or not at all, at once, not durably.

        Raises OSError.
        """
        ...

    async def files(self, context: str, artifact: Artifact) -> Sequence[Stored]:
        """The files of an artifact, by path."""
        ...

    def read(self, context: str, artifact: Artifact, path: str) -> AsyncIterator[bytes]:
        """The bytes of one of its files; with an empty path, of its only file, or of a tar archive of all files.

        Raises ArtifactError.
        """
        ...


class Values(Protocol):
    """Results and outputs that are too large for the database, in a file beside the attempt's log."""

    def spill(self, attempt: Attempt, result: Any, outputs: Mapping[str, str]) -> int:
        """Writes them durably, replacing earlier ones; returns their size. Blocks as long as the disk does. Idempotent.

        Raises OSError.
        """
        ...

    def load(self, attempt: Attempt) -> tuple[Any, Mapping[str, str]]:
        """The result and the outputs. Raises OSError, also if the file is missing or incomplete."""
        ...
