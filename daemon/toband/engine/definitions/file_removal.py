"""Disables or deletes definitions that no definition file has any more."""

from __future__ import annotations

from collections.abc import Iterable

from toban.definition import DefinitionKind
from toband.engine.definitions.file_changes import ChangeKind, DefinitionChange, audited_change, removed
from toband.engine.definitions.file_claims import below
from toband.engine.definitions.file_status import FileStates
from toband.ports import ActiveRunError, Clock, DefinitionStore, JobInUseError, Listing, StoredWorkflow, auditing


class FileRemoval:
    def __init__(self, store: DefinitionStore, clock: Clock, files: FileStates, *, delete: bool) -> None:
        """`delete`: deletes them, else disables them."""
        self._store = store
        self._clock = clock
        self._files = files
        self._delete = delete

    async def remove(self, listing: Listing, owned: Iterable[StoredWorkflow], changes: list[DefinitionChange]) -> bool:
        """Workflows first: they use the jobs. False if one has to be tried again. Raises StoreError."""
        done = True
        for stored in sorted(owned, key=lambda each: each.kind is DefinitionKind.JOB):
            if not stored.file or not self._still_has(stored, listing):
                with auditing(audited_change(self._clock, stored.owner)):
                    done = await self._remove(stored, changes) and done
        return done

    async def _remove(self, stored: StoredWorkflow, changes: list[DefinitionChange]) -> bool:
        disowned = bool(stored.file)
        if disowned and not await self._store.disown_definition(stored.name, stored.owner, at=self._clock.now()):
            return False
        if self._delete and await self._deleted(stored):
            changes.append(removed(stored, ChangeKind.DELETED))
            return True
        if disowned:
            changes.append(removed(stored, ChangeKind.DISABLED))
        return not self._delete

    def _still_has(self, stored: StoredWorkflow, listing: Listing) -> bool:
        if stored.file not in listing.files:
            return below(stored.file, listing.unreadable)
        state = self._files.of(stored.file)
        # A file that disappeared while it was read is looked up again next time.
        return state is None or state.broken or stored.name in state.names

    async def _deleted(self, stored: StoredWorkflow) -> bool:
        """False if it is in use: every pass tries again."""
        try:
            return await self._store.delete_workflow(stored.name, at=self._clock.now(), kind=stored.kind)
        except (ActiveRunError, JobInUseError):
            return False
