"""Calls the function of a python step. Started by path, so that any interpreter can run it: standard library only.

$TOBAN_CALL names the function; its result goes to the file $TOBAN_RESULT as JSON. A parameter `context` without another
value gets the context of `context.py`, beside this file. Exit 78 (never retried) means that there was no function to
call, exit 1 that it raised; the exception's error class and retry delay are handed on.
"""

import asyncio
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
            traceback.print_exc()
            return EXIT_RAISED
        return _nothing(f"cannot call {call['target']}: there is no module {error.name!r}")
    except AttributeError as error:
        return _nothing(f"cannot call {call['target']}: {error}")
    except Exception as error:
        return _raised(error)
    if not callable(function):
        return _nothing(f"cannot call {call['target']}: it is not a function")
    args, kwargs = call["args"], call["kwargs"]
    if _wants_context(function, args, kwargs):
        kwargs["context"] = _load_context().Context()
    try:
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = asyncio.run(_await(result))
    except Exception as error:
        return _raised(error)
    return _keep(call["target"], result, result_path)


def _wants_context(function: Any, args: Any, kwargs: Any) -> bool:
    try:
        signature = inspect.signature(function)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return False  # the call itself reports the problem
    wanted = signature.parameters.get("context")
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return wanted is not None and wanted.kind in kinds and "context" not in given


def _load_context() -> Any:
    """Loads by path: the interpreter may lack Toban, or have another release."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "context.py")
    spec = importlib.util.spec_from_file_location("_toban_step_context", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _raised(error: Exception) -> int:
    traceback.print_exc()
    if hasattr(error, "toban_error_class"):
        _load_context().say_class(error)
    return EXIT_RAISED


async def _await(result: object) -> object:
    return await result  # type: ignore[misc]


def _keep(target: str, result: object, path: str) -> int:
    if result is None:
        return 0
    try:
        text = json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        print(f"cannot store what {target} returned: it is not JSON: {error}", file=sys.stderr)
        return EXIT_RAISED
    data = text.encode()
    if len(data) > RESULT_LIMIT:
        print(
            f"cannot store what {target} returned: {len(data)} bytes, at most {RESULT_LIMIT} are kept",
            file=sys.stderr,
        )
        return EXIT_RAISED
    with open(path, "wb") as file:
        file.write(data)
    return 0


def _nothing(text: str) -> int:
    print(text, file=sys.stderr)
    return EXIT_NOTHING_TO_CALL


if __name__ == "__main__":
    sys.exit(main())
