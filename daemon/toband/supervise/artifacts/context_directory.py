"""The context directory of a run: stores the artifacts of its steps, and copies them to other runs."""

from __future__ import annotations

import errno
import os
import posixpath
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from toban.definition import Output
from toband.domain.run_model import Artifact
from toband.ports import ArtifactError, Collect
from toband.supervise.artifacts.file_copy import Amount, Transfer
from toband.supervise.artifacts.masked_names import MaskedNames
from toband.supervise.artifacts.path_selection import EntryKind, SelectedEntry, check_size, is_pattern, select, tree
from toband.supervise.files.file_budget import Budget, TooMuchError
from toband.supervise.files.file_user import FileUser, file_user
from toband.supervise.files.safe_directory import (
    LeadsOutError,
    SafeDirectory,
    SpecialFileError,
    clean,
    joined,
)

if sys.platform != "win32":
    from toband.supervise.shim.privileges import separates_users


def collect(what: Collect, budget: Budget) -> tuple[Artifact, ...]:
    """See `ports.Artifacts`. Checks everything before changing anything. Raises StoppedError too."""
    with (
        _opened_workspace(what.workspace, file_user(what.user)) as workspace,
        _own_context(what.context, "keep the outputs") as context,
    ):
        skip = (context.identity,)
        found = [(output, _named(what, output, _found(workspace, output, skip, budget))) for output in what.outputs]
        if what.final:
            _miss_none(what, [output for output, entries in found if not entries])
        _check_sizes(workspace, found, budget)
        try:
            make_own(context, clean(what.folder))
        except (PermissionError, NotADirectoryError) as error:
            raise ArtifactError(f"cannot keep the outputs: {_reason(error)}") from None
        keep = Transfer(source=workspace, target=context, durable=True, budget=budget)
        for output, entries in found:
            if not entries:
                # The output of an earlier iteration is no longer the latest.
                context.remove(joined(clean(what.folder), output.name))
        return tuple(_keep(keep, what, output, entries) for output, entries in found if entries)


def _keep(transfer: Transfer, what: Collect, output: Output, entries: Sequence[SelectedEntry]) -> Artifact:
    place = joined(clean(what.folder), output.name)
    try:
        if what.iteration is None:
            amount = transfer.put(entries, place)
        else:
            amount = _keep_twice(transfer, entries, place, what.iteration)
    except (SpecialFileError, TooMuchError, PermissionError) as error:
        raise ArtifactError(f'cannot keep output "{output.name}": {_reason(error)}') from None
    path = clean(output.path)
    if what.masker is not None:
        path = MaskedNames(what.masker).of(path)
    shown = place if is_pattern(output.path) else joined(place, path)
    return Artifact(name=output.name, path=shown, type=output.type, files=amount.files, bytes=amount.bytes)


def _keep_twice(transfer: Transfer, entries: Sequence[SelectedEntry], place: str, iteration: int) -> Amount:
    """Stores them under the iteration and as the latest, which are the same files."""
    context = transfer.target
    folder, _, name = place.rpartition("/")
    numbered = joined(folder, f"iteration-{iteration}")
    make_own(context, numbered)
    amount = transfer.put(entries, joined(numbered, name))
    again = transfer.budget.renewed(None)
    with SafeDirectory(context.path) as kept:
        latest = Transfer(source=kept, target=context, link=True, durable=True, budget=again)
        latest.put(tree(kept, joined(numbered, name), again), place)
    return amount


def _found(
    workspace: SafeDirectory, output: Output, skip: Sequence[tuple[int, int]], budget: Budget
) -> Sequence[SelectedEntry]:
    try:
        return select(workspace, output.path, budget, skip)
    except LeadsOutError as error:
        raise ArtifactError(
            f'cannot keep output "{output.name}": {error}; it must stay in the workspace {workspace.path}'
        ) from None
    except (SpecialFileError, TooMuchError, PermissionError) as error:
        raise ArtifactError(f'cannot keep output "{output.name}": {_reason(error)}') from None


def _named(what: Collect, output: Output, entries: Sequence[SelectedEntry]) -> Sequence[SelectedEntry]:
    """The entries with the names that they are stored under. Raises ArtifactError if masking them is impossible."""
    if what.masker is None:
        return entries
    names = MaskedNames(what.masker)
    named = []
    for entry in entries:
        path, target = names.of(entry.path), entry.target
        if what.masker.mask(os.fsencode(path)) != os.fsencode(path):
            raise ArtifactError(f'cannot keep output "{output.name}": a secret is spread over names of directories')
        if entry.kind is EntryKind.LINK:
            here = posixpath.dirname(entry.path)
            led_to = posixpath.normpath(posixpath.join(here, target))
            target = posixpath.relpath(names.of(led_to if led_to != "." else "") or ".", names.of(here) or ".")
        named.append(replace(entry, path=path, target=target))
    return sorted(named, key=lambda entry: entry.path)


def _check_sizes(
    workspace: SafeDirectory, found: Sequence[tuple[Output, Sequence[SelectedEntry]]], budget: Budget
) -> None:
    """Checks all outputs together. Raises ArtifactError."""
    try:
        check_size(workspace, [entry for _, entries in found for entry in entries], budget)
    except (SpecialFileError, TooMuchError, PermissionError) as error:
        names = ", ".join(output.name for output, entries in found if entries)
        raise ArtifactError(f"cannot keep the outputs {names}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror}"
    return str(error)


def _miss_none(what: Collect, missing: Sequence[Output]) -> None:
    """Raises ArtifactError."""
    reasons = [
        f'output "{output.name}" is missing: '
        + (
            f"nothing in {what.workspace} fits {output.path}"
            if is_pattern(output.path)
            else f"there is no {output.path} in {what.workspace}"
        )
        for output in missing
        if not output.optional
    ]
    if reasons:
        raise ArtifactError("; ".join(reasons))


def _opened_workspace(path: str, user: FileUser | None) -> SafeDirectory:
    try:
        return SafeDirectory(path, user=user)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(f"cannot keep the outputs: there is no directory {path}") from None
    except PermissionError as error:
        raise ArtifactError(f"cannot keep the outputs of {path}: {error.strerror}") from None


def _own_context(path: str, doing: str) -> SafeDirectory:
    """Creates it if it is missing. A permanent failure is an ArtifactError. Raises OSError too."""
    try:
        return SafeDirectory(path, make=True)
    except (PermissionError, FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise ArtifactError(f"cannot {doing}: {_reason(error)}") from None


def make_own(context: SafeDirectory, path: str, *, durable: bool = True) -> None:
    """Makes the directory and its parents. Raises OSError, PermissionError if another user owns one of them.

    Steps of other users may write to the context directory. A user can change its own directories there at any time,
    and could so make the daemon write or read any file of its own.
    """
    made = context.make_directories(path)
    if durable:
        for each in made:
            context.sync(each.rpartition("/")[0])
    if not path or sys.platform == "win32" or not separates_users():
        return
    parts = path.split("/")
    for number in range(len(parts)):
        here = "/".join(parts[: number + 1])
        owner = context.facts(here).st_uid
        if owner != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to user {owner}", f"{context.path}/{here}")


def adopt(context_path: str, folders: Mapping[str, str], budget: Budget) -> None:
    """See `ports.Artifacts`. Raises StoppedError too."""
    with _own_context(context_path, "reuse the artifacts") as context:
        for name, origin in folders.items():
            folder = clean(name)
            try:
                with SafeDirectory(origin) as source:
                    if source.identity == context.identity:
                        continue  # both runs use the same directory
                    _reuse(
                        Transfer(source=source, target=context, link=True, durable=True, budget=budget),
                        folder,
                    )
            except (FileNotFoundError, NotADirectoryError):
                raise ArtifactError(
                    f"cannot reuse the artifacts in {os.path.join(origin, folder)}: it is gone"
                ) from None
            except (LeadsOutError, SpecialFileError, PermissionError) as error:
                raise ArtifactError(
                    f"cannot reuse the artifacts in {os.path.join(origin, folder)}: {_reason(error)}"
                ) from None


def _reuse(transfer: Transfer, folder: str) -> None:
    entries = tree(transfer.source, folder, transfer.budget)
    make_own(transfer.target, folder.rpartition("/")[0])
    transfer.put(entries, folder)
