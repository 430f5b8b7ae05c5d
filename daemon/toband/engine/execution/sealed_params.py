"""Seals the secret parameters of a run before it is stored, and opens them when a step needs a value."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition import MASK, ParamError, Workflow
from toban.limits import MAX_SECRET_BYTES, MIN_SECRET_CHARS
from toband.domain.run_model import Run
from toband.domain.secret_params import is_sealed, sealed_data, sealed_value, secret_params
from toband.ports import SealError, SecretSource


@dataclass(frozen=True, slots=True)
class SealedParams:
    source: SecretSource

    async def seal(self, workflow: Workflow, params: Mapping[str, Any], run_id: str) -> dict[str, Any]:
        """The parameters of a new run, with the secret ones sealed for it. Raises ParamError, SealError."""
        found = self.mask(workflow, params)
        for name, value in found.items():
            if value is MASK:
                data = await self.source.seal(params[name], _place(run_id, name))
                found[name] = sealed_value(base64.b64encode(data).decode())
        return found

    def mask(self, workflow: Workflow, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, with `***` for the secret ones. Raises ParamError for a value that cannot be secret."""
        given = {name for name in secret_params(workflow) if params.get(name) is not None}
        problems = [(name, problem) for name in sorted(given) if (problem := _problem(params[name]))]
        if problems:
            raise ParamError(problems)
        return {name: MASK if name in given else value for name, value in params.items()}

    async def open(self, run: Run) -> dict[str, Any]:
        """The parameters of a run with the values of the secret ones, to be sealed for another. Raises SealError."""
        return {name: await self.value(run, name) if is_sealed(value) else value for name, value in run.params.items()}

    async def value(self, run: Run, name: str) -> str:
        """The value of a secret parameter. Raises SealError."""
        value = run.params[name]
        if not is_sealed(value):
            return str(value)  # of a run that is older than the `secret` of its parameter
        try:
            data = base64.b64decode(sealed_data(value), validate=True)
        except binascii.Error:
            raise SealError("decrypt", _place(run.id, name), "the stored data is damaged") from None
        return await self.source.unseal(data, _place(run.id, name))

    async def keyed_digest(self, digest: str) -> str:
        """A digest of a request with secrets in it, which cannot be compared with guesses. Raises SealError."""
        return await self.source.keyed_digest(digest)


def check_secret_names(workflow: Workflow, names: Collection[str]) -> None:
    """Raises ParamError unless all of these parameters, which get secrets, are secret."""
    known = secret_params(workflow)
    if wrong := sorted(name for name in names if name in workflow.params and name not in known):
        text = f"gets a secret, but is not secret in {workflow.name}: declare it there with secret: true"
        raise ParamError([(name, text) for name in wrong])


def check_public(workflow: Workflow, params: Collection[str]) -> None:
    """Checks parameters that are kept where everybody can read them. Raises ParamError if one of them is secret."""
    if found := sorted(secret_params(workflow).intersection(params)):
        text = "is secret: only StartRun, RetryRun and a parent run can give it, not a schedule or an event"
        raise ParamError([(name, text) for name in found])


def _place(run_id: str, name: str) -> str:
    return f"parameter {name} of run {run_id}"


def _problem(value: str) -> str:
    if len(value) < MIN_SECRET_CHARS:
        return f"a secret has at least {MIN_SECRET_CHARS} characters: a shorter one cannot be masked in logs"
    if len(value.encode(errors="replace")) > MAX_SECRET_BYTES:
        return f"a secret has at most {MAX_SECRET_BYTES // 1024} KiB"
    return "a secret cannot contain a NUL character" if "\0" in value else ""
