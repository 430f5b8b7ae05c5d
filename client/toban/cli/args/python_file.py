"""Definition files in Python: runs a file, in this process, and finds the workflows that it defines."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown

if TYPE_CHECKING:
    from toban.workflow import Workflow


def workflows_in(path: str, data: bytes) -> list[Workflow]:
    """The workflows of a file with this content, in its order; their definitions are built. Raises Failure.

    The file is imported like the module that its steps call, so `if __name__ == "__main__"` is false. What it prints
    goes to standard error.
    """
    from toban.workflow import Workflow

    with _imported(path, data) as module:
        found = {id(each): each for each in vars(module).values() if isinstance(each, Workflow)}
        # Those that it imported belong to other files.
        own = [each for each in found.values() if each.function.__module__ == module.__name__]
        for each in own:
            # Now, while the file's own imports work.
            _ = each.mistakes
    if not own:
        raise Failure(
            f"cannot read {shown(path)}: it defines no workflow",
            Exit.USAGE,
            hint="decorate a function with @workflow: see docs/sdk.md",
        )
    return own


@contextlib.contextmanager
def _imported(path: str, data: bytes) -> Iterator[ModuleType]:
    """The module; its directory is first in the search path meanwhile. Raises Failure."""
    directory, base = os.path.split(os.path.abspath(path))
    name = base.removesuffix(".py")
    module = ModuleType(name)
    module.__file__ = os.path.join(directory, base)
    before = sys.modules.get(name)
    sys.modules[name] = module
    sys.path.insert(0, directory)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            try:
                # Not by way of a cache, which misses changes within a second.
                code = compile(data, module.__file__, "exec", dont_inherit=True)
                exec(code, vars(module))  # noqa: S102 - the user named the file
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise _broken(path, error) from error
            yield module
    finally:
        sys.path.remove(directory)
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before


def _broken(path: str, error: BaseException) -> Failure:
    """The error with the lines that led to it, without those of this program."""
    frames = traceback.extract_tb(error.__traceback__)
    own = os.path.abspath(path)
    first = next((number for number, frame in enumerate(frames) if os.path.abspath(frame.filename) == own), len(frames))
    lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
    return Failure(
        f"cannot read {shown(path)}: it fails when it is imported",
        Exit.INVALID_DEFINITION,
        lines=[line for text in lines for line in text.rstrip("\n").split("\n")],
    )
