"""Secrets of a step: placeholders while its templates are filled in, and the values at its launch.

Templates are filled in with placeholders, so that no value is in a rendered step, in a worker process, in an error or
in a record. The values replace them in what the supervisor alone gets.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from toban.definition import Rendered, RenderError, Scope, SecretReferences, secret_references
from toban.definition.scripts.step_rendering import MAX_STDIN_BYTES, MAX_STRING_BYTES
from toband.domain.plan import Plan
from toband.domain.run_model import Run
from toband.engine.execution.sealed_params import SealedParams
from toband.ports import SecretMaterial, SecretSource

# A placeholder cannot be guessed, and no placeholder means anything in another process.
_MARK = secrets.token_hex(16)
_PLACEHOLDER = re.compile(f"<{_MARK}:(secrets|params):([A-Za-z_][A-Za-z0-9_]*)>")


def _placeholder(root: str, name: str) -> str:
    return f"<{_MARK}:{root}:{name}>"


def has_secrets(plan: Plan, attempt_name: str) -> bool:
    """Whether the step, or its completion check, gets values of secrets."""
    step = plan.definition(attempt_name)
    return bool(step.secret_files or secret_references(plan.workflow, step))


def with_placeholders(scope: Scope, refs: SecretReferences) -> Scope:
    """The scope in which the secrets of a step are placeholders."""
    if not refs:
        return scope
    given = {name: _placeholder("params", name) for name in refs.params if scope.params.get(name) is not None}
    return replace(
        scope,
        secrets={name: _placeholder("secrets", name) for name in refs.secrets},
        params=scope.params | given,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSecrets:
    """Gets the values for placeholders."""

    source: SecretSource
    sealed: SealedParams

    async def material(self, plan: Plan, run: Run, attempt_name: str, rendered: Rendered) -> SecretMaterial | None:
        """What the process gets with secrets in it; None without any.

        Raises RenderError, SecretError, SealError.
        """
        values = await self._values(plan, run, attempt_name)
        if not values and not rendered.secret_files:
            return None
        step = plan.definition(attempt_name)
        env = {name: text for name, text in rendered.env.items() if _PLACEHOLDER.search(text)}
        made = {name: _filled(text, values) for name, text in env.items()}
        for name, text in made.items():
            if len(f"{name}={text}".encode()) > MAX_STRING_BYTES:
                raise RenderError(
                    f"cannot start step {step.id}: env.{name} has more than {MAX_STRING_BYTES:,} bytes "
                    "with its secrets: use secret_files"
                )
        stdin = None
        if rendered.stdin is not None and _PLACEHOLDER.search(rendered.stdin):
            stdin = _filled(rendered.stdin, values)
            if len(stdin.encode()) > MAX_STDIN_BYTES:
                raise RenderError(
                    f"cannot start step {step.id}: its stdin has more than {MAX_STDIN_BYTES:,} bytes with its secrets: "
                    "use secret_files"
                )
        files = {name: _filled(text, values) for name, text in rendered.secret_files.items()}
        return SecretMaterial(env=made, stdin=stdin, files=files, masked=frozenset(values.values()))

    async def child_params(
        self, plan: Plan, run: Run, attempt_name: str, params: dict[str, Any]
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """The parameters of a child with the values of secret parameters in them, and the names of those.

        Raises SealError.
        """
        values = await self._values(plan, run, attempt_name)
        if not values:
            return params, frozenset()
        secret = frozenset(name for name, value in params.items() if _PLACEHOLDER.search(str(value)))
        return params | {name: _filled(params[name], values) for name in secret}, secret

    async def known_values(self, plan: Plan, run: Run, attempt_name: str) -> frozenset[str]:
        """The values that a step which runs was given, as far as they still exist: to mask them.

        Raises SecretUnavailableError, SealError, StoreError.
        """
        refs = secret_references(plan.workflow, plan.definition(attempt_name))
        values = set((await self.source.known(refs.secrets)).values()) if refs.secrets else set()
        for name in refs.params:
            if run.params.get(name) is not None:
                values.add(await self.sealed.value(run, name))
        return frozenset(values)

    async def _values(self, plan: Plan, run: Run, attempt_name: str) -> Mapping[tuple[str, str], str]:
        refs = secret_references(plan.workflow, plan.definition(attempt_name))
        values: dict[tuple[str, str], str] = {}
        if refs.secrets:
            revealed = await self.source.reveal(run.workflow, refs.secrets)
            values |= {("secrets", name): value for name, value in revealed.items()}
        for name in refs.params:
            if run.params.get(name) is not None:
                values["params", name] = await self.sealed.value(run, name)
        return values


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that no placeholder is in."""
    return {name: text for name, text in env.items() if not _PLACEHOLDER.search(text)}


def _filled(text: Any, values: Mapping[tuple[str, str], str]) -> Any:
    """Text with values in place of placeholders; other data, which has none, as it is."""
    match text:
        case str():
            return _PLACEHOLDER.sub(lambda found: values.get((found[1], found[2]), ""), text)
        case list():
            return [_filled(each, values) for each in text]
        case dict():
            return {name: _filled(each, values) for name, each in text.items()}
        case _:
            return text
