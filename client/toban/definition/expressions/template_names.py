"""The names that templates may use, and the kind of each value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice

from toban.definition.expressions.templates import WHOLE, Ref
from toban.definition.model.workflow import Param, ParamType, Workflow
from toban.definition.scalars.names import check_secret_name

_MOST_CANDIDATES = 500
_MOST_SHOWN = 10


class ValueKind(StrEnum):
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
    ParamType.STRING: ValueKind.STRING,
    ParamType.INTEGER: ValueKind.INT,
    ParamType.NUMBER: ValueKind.DOUBLE,
    ParamType.BOOLEAN: ValueKind.BOOL,
    ParamType.LIST: ValueKind.LIST,
    ParamType.MAPPING: ValueKind.MAP,
}
RUN_FIELDS = {
    "id": ValueKind.STRING,
    "workflow": ValueKind.STRING,
    "number": ValueKind.INT,
    "trigger": ValueKind.STRING,
    "scope": ValueKind.STRING,
    "retry_of": ValueKind.STRING,
    "dir": ValueKind.STRING,
    "base_dir": ValueKind.STRING,
    "scheduled_at": ValueKind.STRING,
    "missed": ValueKind.LIST,
    "state": ValueKind.STRING,
    "failed_steps": ValueKind.LIST,
    "error": ValueKind.STRING,
}
RESULT_FIELDS = frozenset({"state", "failed_steps", "error"})
"""Fields of `run` that only finally steps have."""
EVENT_FIELDS = {
    "id": ValueKind.STRING,
    "type": ValueKind.STRING,
    "payload": ValueKind.DYN,
    "source": ValueKind.STRING,
    "source_run": ValueKind.STRING,
    "source_step": ValueKind.STRING,
    "depth": ValueKind.INT,
    "at": ValueKind.STRING,
    "coalesced": ValueKind.INT,
}
STEP_FIELDS = {
    "stdout": ValueKind.STRING,
    "stderr": ValueKind.STRING,
    "exit_code": ValueKind.INT,
    "status": ValueKind.STRING,
    "result": ValueKind.DYN,
    "outputs": ValueKind.TEXTS,
}
CHECK_FIELDS = {"stdout": ValueKind.STRING, "stderr": ValueKind.STRING, "exit_code": ValueKind.INT}


def param_kind(param: Param) -> ValueKind:
    """A parameter that may be null has no static type."""
    return ValueKind.DYN if param.nullable else _PARAM_KINDS[param.type]


def step_kind(name: str, *, many: bool) -> ValueKind | None:
    """The kind of a step's field; for a step with instances (`many`) it is a list of them."""
    kind = STEP_FIELDS.get(name)
    return ValueKind.LIST if many and kind is not None and name != "status" else kind


def kind_of(ref: Ref, workflow: Workflow) -> ValueKind | None:
    """The kind of a reference in a workflow that was validated before; None if it is unknown."""
    if not ref.names and ref.root in WHOLE:
        return ValueKind.MAP
    match ref.root:
        case "params":
            param = workflow.params.get(ref.names[0])
            return param_kind(param) if param is not None else None
        case "run":
            return RUN_FIELDS.get(ref.names[0])
        case "event":
            return EVENT_FIELDS.get(ref.names[0])
        case "env" | "secrets":
            return ValueKind.STRING
        case "item":
            return ValueKind.DYN
        case "iteration":
            return ValueKind.INT
        case "check":
            return CHECK_FIELDS.get(ref.names[0])
        case _:
            step = workflow.steps.get(ref.names[0])
            return step_kind(ref.names[1], many=step is not None and step.for_each is not None)


def suggestion(name: str, known: Collection[str]) -> str:
    """`: did you mean "x"?`, or nothing when no known name is near, or too many are known."""
    close = get_close_matches(name, known, n=1) if len(known) <= _MOST_CANDIDATES else ()
    return f': did you mean "{close[0]}"?' if close else ""


def step_suggestion(name: str, steps: Collection[str], titles: Mapping[str, str]) -> str:
    """Like `suggestion`, for steps; `titles` are their ids by title."""
    if name in titles:
        return f': that is a title, write the id "{titles[name]}"'
    return suggestion(name, steps)


def _known(names: Collection[str], what: str) -> str:
    shown = list(islice(names, _MOST_SHOWN + 1))
    if not shown:
        return f": the workflow has no {what}"
    more = " …" if len(shown) > _MOST_SHOWN else ""
    return f" (known: {', '.join(shown[:_MOST_SHOWN])}{more})"


def event_kind(names: Sequence[str]) -> ValueKind | str:
    """The kind of a field of `event`, or of all of it without names; else the problem with the name."""
    if not names:
        return ValueKind.MAP
    name = names[0]
    if name in EVENT_FIELDS:
        return EVENT_FIELDS[name]
    hint = suggestion(name, EVENT_FIELDS)
    if not hint:
        hint = f"{_known(EVENT_FIELDS, 'fields')}: for a field of its payload write event.payload.{name}"
    return f'unknown field "{name}" of event{hint}'


def _secret_name(name: str) -> ValueKind | str:
    try:
        check_secret_name(name)
    except ValueError as error:
        return str(error)
    return ValueKind.STRING


def _secret_elsewhere(ref: Ref) -> str:
    if ref.root == "env":
        return f"{ref} has a secret in it: use ${ref.names[0]} in the script instead"
    name = ref.names[0].upper()
    return (
        f"a secret may be used in env, stdin and secret_files only: write env: {{{name}: '{{{{ {ref} }}}}'}}, "
        f"and use ${name} in the script"
    )


class TemplateNames:
    """The names that one part of a definition may use; `knows` lists them for messages."""

    knows = "a template knows params, run, event, env, secrets and steps"

    def __init__(
        self,
        *,
        params: Mapping[str, ValueKind | None] | None,
        env: Collection[str] | None,
        steps: Collection[str] | None,
        titles: Mapping[str, str] | None = None,
        ancestors: Collection[str] = (),
        late: Collection[str] = (),
        step: str = "",
        lists: Collection[str] = (),
        finally_step: bool = False,
        secret_params: Collection[str] = (),
        secret_env: Collection[str] = (),
        limit: str = "",
    ) -> None:
        """A parameter of kind None is invalid itself and is accepted anywhere.

        `params`, `env` and `steps` are None where they may not be used at all; `limit` then says what may be used.
        `titles` are ids of steps by title, for hints. `lists` are the steps with instances, `late` the finally steps,
        for a step that is none. A `finally_step` may use the result of the run. `secret_env` are the variables of the
        workflow that have a secret in them.
        """
        self._params = params
        self._env = env
        self._steps = steps
        self._titles = titles or {}
        self._ancestors = ancestors
        self._late = late
        self._step = step
        self._lists = lists
        self._finally_step = finally_step
        self._confidential = {"params": secret_params, "env": secret_env}
        self._secret_roots: Collection[str] = ()
        self._limit = limit
        self._barred: Mapping[str, str] = {}

    def without(self, barred: Mapping[str, str]) -> TemplateNames:
        """The same names without the roots that have no value there, with the reasons."""
        names = copy(self)
        names._barred = barred
        return names

    def with_secrets(self, roots: Collection[str] = ("secrets", "params", "env")) -> TemplateNames:
        """The same names, where references of these roots may be secrets."""
        names = copy(self)
        names._secret_roots = roots
        return names

    def is_secret(self, ref: Ref) -> bool:
        """Whether its value is a secret, or has one in it."""
        return ref.root == "secrets" or (bool(ref.names) and ref.names[0] in self._confidential.get(ref.root, ()))

    def resolve(self, ref: Ref) -> ValueKind | str:
        """The kind of a reference, or its problem."""
        if ref.root == "item" and self._steps is None:
            return f"{self._limit}, not item"
        if ref.root in self._barred:
            return self._barred[ref.root]
        if self.is_secret(ref) and ref.root not in self._secret_roots:
            return _secret_elsewhere(ref)
        match ref.root:
            case "params":
                return self._param(ref.names)
            case "run":
                return self._run_field(ref.names[0]) if ref.names else ValueKind.MAP
            case "event":
                return event_kind(ref.names)
            case "env":
                return self._env_name(ref.names[0])
            case "secrets":
                return _secret_name(ref.names[0])
            case "item":
                return ValueKind.DYN
            case "iteration":
                return ValueKind.INT
            case "check":
                return self._check_field(ref.names[0])
            case _:
                return self._step_field(*ref.names)

    def _param(self, names: Sequence[str]) -> ValueKind | str:
        if self._params is None:
            return f"{self._limit}, not params"
        if not names:
            return ValueKind.MAP
        name = names[0]
        if name in self._params:
            return self._params[name] or ValueKind.DYN
        hint = suggestion(name, self._params) or _known(self._params, "params")
        return f'unknown parameter "{name}"{hint}'

    def _run_field(self, name: str) -> ValueKind | str:
        fields = [field for field in RUN_FIELDS if self._finally_step or field not in RESULT_FIELDS]
        if name in fields:
            return RUN_FIELDS[name]
        if name in RESULT_FIELDS:
            return f"run.{name} is known only when all steps have ended: use it in a step of finally"
        hint = suggestion(name, fields) or _known(fields, "fields")
        return f'unknown field "{name}" of run{hint}'

    def _env_name(self, name: str) -> ValueKind | str:
        if self._env is None:
            return f"{self._limit}, not env"
        if name in self._env:
            return ValueKind.STRING
        hint = suggestion(name, self._env) or _known(self._env, "env")
        return f'"{name}" is not in the env of the workflow{hint}'

    def _step_field(self, step: str, name: str) -> ValueKind | str:
        if self._steps is None:
            return f"{self._limit}, not steps"
        if step not in self._steps:
            hint = ""
            # Finding which of very many steps come before is too much work for a hint.
            if len(self._steps) <= _MOST_CANDIDATES:
                hint = step_suggestion(step, self._steps, self._titles)
                hint = hint or _known(self._ancestors, "steps before this one")
            return f'unknown step "{step}"{hint}'
        if step == self._step:
            return f'step "{step}" refers to itself: only steps that come before have a result'
        if step not in self._ancestors and step in self._late:
            return f'step "{step}" runs when all steps have ended: only other finally steps can use it'
        if step not in self._ancestors:
            return f'step "{step}" does not come before "{self._step}": add it to depends_on of {self._step}'
        kind = step_kind(name, many=step in self._lists)
        if kind is None:
            hint = suggestion(name, STEP_FIELDS) or _known(STEP_FIELDS, "fields")
            return f'unknown field "{name}" of step "{step}"{hint}'
        return kind

    def _check_field(self, name: str) -> ValueKind | str:
        if name in CHECK_FIELDS:
            return CHECK_FIELDS[name]
        hint = suggestion(name, CHECK_FIELDS) or _known(CHECK_FIELDS, "fields")
        return f'unknown field "{name}" of check{hint}'
