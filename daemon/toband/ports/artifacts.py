"""What steps hand to each other as files: kept in a run's context directory, laid out in workspaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toban.definition import Output
from toban.safe_text import sendable
from toband.domain.run_model import Artifact, Attempt


class ArtifactError(Exception):
    r"""Why an input cannot be laid out, or an output not be kept; a text for people. Trying again cannot help.

    Bytes of file names that are not UTF-8 are written out in it, as `\xff`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(sendable(text))


class StoppedError(Exception):
    """The work was broken off; it may be taken up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """What to keep of a step's workspace. Paths of `outputs` are rendered, and relative to the workspace.

    `folder` is the step's place in the context directory: `build`, or `build/3` for an instance. With `iteration` what
    is kept goes to `<folder>/iteration-<n>/<name>/` too; `<folder>/<name>/` always holds the latest. Only a `final`
    collection fails for want of an output that is not optional.
    """

    context: str
    folder: str
    workspace: str
    outputs: Sequence[Output]
    iteration: int | None = None
    final: bool = True
    run_id: str = ""
    """Whose turn it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One thing to lay out: what stands at `source` (absolute) appears at `path`, relative to the workspace.

    `source` None: it is missing, and an empty file, or with `directory` an empty directory, stands for it.
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
    """Everything here is done beside the event loop, in turns that go round from run to run.

    Cancelling a call stops its work. When the daemon ends, calls that go on raise StoppedError. A crash leaves nothing
    half made behind.
    """

    async def collect(self, what: Collect) -> tuple[Artifact, ...]:
        """Keeps copies, so that nothing that happens to the workspace later changes them. Repeating it is harmless.

        What is missing, where that is no failure, is not among the artifacts; what was kept of it before is removed.
        Raises ArtifactError, also for a path that leads out of the workspace, and for more than the limits allow;
        OSError when the disk will not.
        """
        ...

    async def place(self, workspace: str, placements: Sequence[Placement], *, own: bool, run_id: str = "") -> None:
        """Links files where that is possible, else copies them. `own`: the workspace is the run's own directory.

        Elsewhere only what an earlier run laid out there, and nobody has touched since, is replaced. Raises
        ArtifactError, OSError.
        """
        ...

    async def adopt(self, context: str, folders: Mapping[str, str], *, run_id: str = "") -> None:
        """Gives a run what others kept: by folder (as in Collect), the context directory that it comes from.

        Raises ArtifactError if one is gone.
        """
        ...

    async def fingerprint(self, workspace: str, path: str, *, run_id: str = "") -> str:
        """Changes when the file or the directory changes; of something that is not there too. Raises ArtifactError."""
        ...

    async def fingerprint_output(self, attempt: Attempt) -> str:
        """Changes with what the attempt printed to its standard output."""
        ...

    def note(self, context: str, name: str, facts: Mapping[str, Any]) -> None:
        """Writes a small JSON file (`_workflow.json`, `build/_meta.json`) whole or not at all, at once, not durably.

        Raises OSError.
        """
        ...

    async def files(self, context: str, artifact: Artifact) -> Sequence[Stored]:
        """What an artifact consists of, by path."""
        ...

    def read(self, context: str, artifact: Artifact, path: str) -> AsyncIterator[bytes]:
        """The bytes of one file of it; with an empty path, of its only file, else of a tar archive of all.

        Raises ArtifactError.
        """
        ...


class Values(Protocol):
    """Results and outputs that are too large for the database, in a file beside the attempt's log."""

    def spill(self, attempt: Attempt, result: Any, outputs: Mapping[str, str]) -> int:
        """Keeps them durably, in the place of what was kept before; how many bytes they are. Takes as long as the disk
        does. Repeating it is harmless. Raises OSError.
        """
        ...

    def load(self, attempt: Attempt) -> tuple[Any, Mapping[str, str]]:
        """What was kept. Raises OSError, also if it is gone or not whole."""
        ...
