"""Which names a template may use, and what kind of value each one is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice

from toban.definition.expressions import Ref
from toban.definition.model import Param, ParamType

_MOST_CANDIDATES = 500
_MOST_SHOWN = 10


class Kind(StrEnum):
    """The static type of a reference; the value names its variables in compiled expressions."""

    STRING = "s"
    INT = "i"
    DOUBLE = "f"
    BOOL = "b"
    LIST = "l"
    MAP = "m"
    TEXTS = "t"  # a mapping of strings
    DYN = "d"


_PARAM_KINDS = {
    ParamType.STRING: Kind.STRING,
    ParamType.INTEGER: Kind.INT,
    ParamType.NUMBER: Kind.DOUBLE,
    ParamType.BOOLEAN: Kind.BOOL,
    ParamType.LIST: Kind.LIST,
    ParamType.MAPPING: Kind.MAP,
}
RUN_FIELDS = {
    "id": Kind.STRING,
    "workflow": Kind.STRING,
    "number": Kind.INT,
    "trigger": Kind.STRING,
}
UNSUPPORTED_RUN_FIELDS = frozenset({"scope", "retry_of", "scheduled_at", "missed"})
STEP_FIELDS = {
    "stdout": Kind.STRING,
    "stderr": Kind.STRING,
    "exit_code": Kind.INT,
    "status": Kind.STRING,
    "result": Kind.DYN,
    "outputs": Kind.TEXTS,
}


def param_kind(param: Param) -> Kind:
    """A parameter that may be null has no type that the compiler could rely on."""
    return Kind.DYN if param.nullable else _PARAM_KINDS[param.type]


def kind_of(ref: Ref, params: Mapping[str, Param]) -> Kind | None:
    """The kind of a reference in a workflow that was validated before; None if it is unknown."""
    name = ref.names[-1]
    match ref.root:
        case "params":
            return param_kind(params[name]) if name in params else None
        case "run":
            return RUN_FIELDS.get(name)
        case "env":
            return Kind.STRING
        case _:
            return STEP_FIELDS.get(name)


def suggestion(name: str, known: Collection[str]) -> str:
    """`: did you mean "x"?`, or nothing when no known name is near, or too many are known."""
    close = get_close_matches(name, known, n=1) if len(known) <= _MOST_CANDIDATES else ()
    return f': did you mean "{close[0]}"?' if close else ""


def _known(names: Collection[str], what: str) -> str:
    shown = list(islice(names, _MOST_SHOWN + 1))
    if not shown:
        return f": the workflow has no {what}"
    more = " …" if len(shown) > _MOST_SHOWN else ""
    return ": there is " + ", ".join(shown[:_MOST_SHOWN]) + more


class Names:
    """What one place of a definition may refer to."""

    def __init__(
        self,
        *,
        params: Mapping[str, Kind | None],
        env: Collection[str] | None,
        steps: Collection[str] | None,
        ancestors: Collection[str],
        step: str = "",
    ) -> None:
        """A parameter of kind None is wrong itself and fits anywhere.

        `env` and `steps` are None where none may be used at all.
        """
        self._params = params
        self._env = env
        self._steps = steps
        self._ancestors = ancestors
        self._step = step

    def resolve(self, ref: Ref) -> Kind | str:
        """The kind of a reference, or what is wrong with it."""
        match ref.root:
            case "params":
                return self._param(ref.names[0])
            case "run":
                return self._run_field(ref.names[0])
            case "env":
                return self._env_name(ref.names[0])
            case _:
                return self._step_field(*ref.names)

    def _param(self, name: str) -> Kind | str:
        if name in self._params:
            return self._params[name] or Kind.DYN
        hint = suggestion(name, self._params) or _known(self._params, "params")
        return f'unknown parameter "{name}"{hint}'

    def _run_field(self, name: str) -> Kind | str:
        if name in RUN_FIELDS:
            return RUN_FIELDS[name]
        if name in UNSUPPORTED_RUN_FIELDS:
            return f"run.{name} is not supported yet"
        hint = suggestion(name, RUN_FIELDS) or _known(RUN_FIELDS, "fields")
        return f'unknown field "{name}" of run{hint}'

    def _env_name(self, name: str) -> Kind | str:
        if self._env is None:
            return "the workflow's own env may use params and run only, not env"
        if name in self._env:
            return Kind.STRING
        hint = suggestion(name, self._env) or _known(self._env, "env")
        return f'"{name}" is not in the env of the workflow{hint}'

    def _step_field(self, step: str, name: str) -> Kind | str:
        if self._steps is None:
            return "the workflow's own env may use params and run only, not steps"
        if step not in self._steps:
            hint = suggestion(step, self._steps) or _known(self._ancestors, "steps before this one")
            return f'unknown step "{step}"{hint}'
        if step == self._step:
            return f'step "{step}" refers to itself: only steps that come before have a result'
        if step not in self._ancestors:
            return (
                f'step "{step}" does not come before "{self._step}": '
                f"add it to depends_on of {self._step}"
            )
        if name not in STEP_FIELDS:
            hint = suggestion(name, STEP_FIELDS) or _known(STEP_FIELDS, "fields")
            return f'unknown field "{name}" of step "{step}"{hint}'
        return STEP_FIELDS[name]
