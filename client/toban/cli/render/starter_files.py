"""The files that `toban init` writes: a first workflow of each kind, with comments."""

from __future__ import annotations

from typing import Final

_HEAD: Final = """\
# A workflow is a list of steps. `toban apply FILE` stores it, `toban run {name}` runs it.
# Every field is described in docs/definition.md; `toban validate FILE` checks this file without a daemon.
name: {name}
description: {description}

# No run takes longer. A step can have a timeout of its own.
timeout: 10m
"""

_PARAMS: Final = """
# Values that a run can change: toban run {name} -p name=Toban
params:
  name: {{type: string, default: world}}
"""

_SHELL: Final = """
steps:
  # Runs with /bin/sh -e. A template such as {{{{ params.name }}}} arrives quoted.
  - name: greet
    run: echo "Hello, "{{{{ params.name }}}}"!"

  # Steps run one after the other unless they say what they depend on.
  - name: flaky
    run: test -e /
    # Tried again after a failure: twice, after 5 s and 10 s.
    on_failure: retry
    max_retries: 2
    retry: {{delay: 5s, backoff: 2}}

  - name: report
    run: echo "The first step said:" {{{{ steps.greet.stdout }}}}
"""

_PYTHON: Final = """
steps:
  # Calls the function count_letters in {module}.py, which is beside this file.
  - name: count
    job_type: python
    target: {module}:count_letters
    kwargs:
      text: "{{{{ params.name }}}}"

  # What the function returned is the result of its step.
  - name: report
    run: echo {{{{ params.name }}}} "has" {{{{ steps.count.result.letters }}}} "letters"
"""

_MODULE: Final = '''\
"""Functions for the steps of {name}."""


def count_letters(text: str) -> dict[str, int]:
    """What it prints is the output of the step, what it returns is its result."""
    print(f"counting the letters of {{text}}")
    return {{"letters": len(text)}}
'''

_SCHEDULE: Final = """
# Due every day at 03:30, in this time zone. `toban workflows next {name}` lists the next times.
timezone: UTC
schedule:
  - cron: "30 3 * * *"
    # If the daemon was not running then, a run starts up to six hours later.
    misfire_grace: 6h

# A run that is due while the last one still runs waits for it.
overlap: queue

steps:
  - name: tell
    run: |
      if [ -n {{{{ run.scheduled_at }}}} ]; then
          echo "due at" {{{{ run.scheduled_at }}}}
      else
          echo "started by hand"
      fi
"""


def starter_files(kind: str, name: str) -> dict[str, str]:
    """The text of each file by its name, the definition first. The kind is shell, python or schedule."""
    module = f"{name.replace('-', '_').replace('.', '_')}_steps"
    match kind:
        case "python":
            text = _HEAD.format(name=name, description="Calls a Python function.") + _PARAMS + _PYTHON
            steps = {f"{module}.py": _MODULE.format(name=name)}
            return {f"{name}.yaml": _filled(text, name, module), **steps}
        case "schedule":
            text = _HEAD.format(name=name, description="Runs every night.") + _SCHEDULE
        case _:
            text = _HEAD.format(name=name, description="Prints a greeting.") + _PARAMS + _SHELL
    return {f"{name}.yaml": _filled(text, name, module)}


def _filled(text: str, name: str, module: str) -> str:
    return text.format(name=name, module=module)
