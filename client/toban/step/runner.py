"""Calls the function of a python step. Started by path, so that any interpreter can run it: standard library only.

$TOBAN_CALL names the function; its result goes to the file $TOBAN_RESULT as JSON. Parameters `event`, `context` and
`emitter` without another value get those of `context.py`, beside this file. Exit 78 (never retried) means that there
was no function to call, exit 1 that it raised, or returned a failure; the error's message, class and retry delay are
handed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from typing import Any

RESULT_LIMIT = 1024 * 1024
EXIT_RAISED = 1
EXIT_NOTHING_TO_CALL = 78
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def main() -> int:
    call = json.loads(os.environ.pop("TOBAN_CALL"))
    result_path = os.environ.pop("TOBAN_RESULT")
    sys.path[0] = os.getcwd()
    sys.argv = [call["target"]]
    module_name, _, path = call["target"].partition(":")
    try:
        function = importlib.import_module(module_name)
        for name in path.split("."):
            function = getattr(function, name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            return _raised(error)
        text = f"cannot call {call['target']}: there is no module {error.name!r}"
        return _refused(text, EXIT_NOTHING_TO_CALL)
    except AttributeError as error:
        return _refused(f"cannot call {call['target']}: {error}", EXIT_NOTHING_TO_CALL)
    except Exception as error:
        return _raised(error)
    if not callable(function):
        return _refused(f"cannot call {call['target']}: it is not a function", EXIT_NOTHING_TO_CALL)
    args, kwargs = call["args"], call["kwargs"]
    try:
        result = function(*args, **kwargs, **_provided(function, args, kwargs))
        if inspect.isawaitable(result):
            result = asyncio.run(_await(result))
    except SystemExit as error:
        if isinstance(error.code, str):
            _say(error.code)
        raise
    except (Exception, asyncio.CancelledError) as error:
        if not _is_result(error):
            return _raised(error)
        result = error
    if not _is_result(result):
        return _keep(call["target"], result, result_path)
    code = _keep(call["target"], result.output, result_path)
    return code if result.success else _failed(result.error)


def _provided(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Values for the parameters that the call leaves open. A default other than None stays."""
    try:
        signature = inspect.signature(function)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {}  # the call itself reports the problem
    provided: dict[str, Any] = {}
    for name, make in (("event", "event"), ("context", "Context"), ("emitter", "Emitter")):
        wanted = signature.parameters.get(name)
        if wanted is None or name in given or wanted.kind not in _BY_NAME:
            continue
        if wanted.default is inspect.Parameter.empty:
            provided[name] = getattr(_load_context(), make)()
        elif wanted.default is None:
            found = getattr(_load_context(), make)()
            # Without an event the default stays.
            provided[name] = found if name != "event" or found else None
    return provided


def _is_result(found: object) -> bool:
    """Whether it is a WorkflowResult: by the name of its class, because the interpreter may lack Toban."""
    named = any(each.__name__ == "WorkflowResult" for each in type(found).__mro__)
    return named and all(hasattr(found, name) for name in ("success", "output", "error"))


@functools.lru_cache(maxsize=1)
def _load_context() -> Any:
    """Loads by path: the interpreter may lack Toban, or have another release."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "step_context.py")
    spec = importlib.util.spec_from_file_location("_toban_step_context", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _raised(error: BaseException) -> int:
    """Prints the traceback from the function on: the frames before it are those of this program and of the import."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, importlib.__file__, "<frozen")):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    return _handed_on(error)


def _handed_on(error: BaseException) -> int:
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    _say(f"{name}: {text}" if text else name)
    if hasattr(error, "toban_error_class"):
        _load_context().say_class(error)
    return EXIT_RAISED


def _failed(error: object) -> int:
    """The function returned a failure: its error is an exception, or anything that describes it."""
    if isinstance(error, BaseException):
        return _raised(error) if error.__traceback__ is not None else _told(error)
    text = str(error) if error else "it returned success=False without an error"
    print(text, file=sys.stderr)
    _say(text)
    return EXIT_RAISED


def _told(error: BaseException) -> int:
    print("".join(traceback.format_exception_only(type(error), error)), end="", file=sys.stderr)
    return _handed_on(error)


def _say(text: str) -> None:
    """The step's error message. Without it, the exit code says that the step failed."""
    with contextlib.suppress(Exception):
        _load_context().say_error(text)


async def _await(result: object) -> object:
    return await result  # type: ignore[misc]


def _keep(target: str, result: object, path: str) -> int:
    if result is None:
        return 0
    try:
        text = json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        return _refused(f"cannot store what {target} returned: it is not JSON: {error}", EXIT_RAISED)
    data = text.encode()
    if len(data) > RESULT_LIMIT:
        text = f"cannot store what {target} returned: {len(data)} bytes, at most {RESULT_LIMIT} are kept"
        return _refused(text, EXIT_RAISED)
    with open(path, "wb") as file:
        file.write(data)
    return 0


def _refused(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    _say(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
