"""Which files a sandboxed step may reach, besides those of the system: its run's, its program's, and those it names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import toban
from toband.ports import Launch
from toband.supervise.files.run_files import RunFiles


def sandbox_plan(launch: Launch, files: RunFiles) -> dict[str, Any]:
    """For `confinement`; `own_read` may be missing, all others must exist when the step starts."""
    sandbox, attempt = launch.sandbox, launch.attempt
    assert sandbox is not None
    own = files.run(attempt.run_id)
    tmp = f"{files.log(attempt).removesuffix('.log')}.tmp" if sandbox.private_tmp else ""
    write = [files.work(attempt.run_id), files.context(attempt.run_id), files.output(attempt), files.result(attempt)]
    return {
        "network": sandbox.network,
        "read_only": list(sandbox.read_only),
        "writable": list(sandbox.writable),
        "own_read": [
            files.params(attempt.run_id),
            files.event(attempt.run_id),
            *(() if f"{launch.workspace}/".startswith(f"{own}/") else (launch.workspace,)),
            os.path.join(os.path.dirname(files.root), "bin"),
            *_programs(launch),
        ],
        "own_write": [*dict.fromkeys((*write, *filter(None, (tmp, launch.env.get("TOBAN_CONTEXT_DIR")))))],
        "tmp": tmp,
    }


def _programs(launch: Launch) -> Iterator[str]:
    """The step's own program, and the interpreters of Python steps."""
    yield from (sys.prefix, sys.base_prefix, *toban.__path__)
    program = launch.argv[0]
    if os.path.isabs(program):
        yield program
        # An interpreter in a virtual environment needs its packages.
        environment = os.path.dirname(os.path.dirname(program))
        if os.path.exists(os.path.join(environment, "pyvenv.cfg")):
            yield environment
            yield os.path.dirname(os.path.dirname(os.path.realpath(program)))
