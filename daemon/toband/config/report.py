"""What `toband --check-config` prints: each setting with its origin, or every problem."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from toband.config.declaration import ConfigProblem, ShownSetting
from toband.config.settings import Config


def report_config(config: Config, *, as_json: bool) -> None:
    """Text is one line for each setting, `KEY = VALUE    # ORIGIN`."""
    for warning in config.warnings:
        print(f"toband: warning: {warning}", file=sys.stderr)
    if as_json:
        facts = {"file": config.file, "warnings": list(config.warnings), "settings": [*map(_facts, config.shown())]}
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for each in config.shown():
        restart = "" if each.live else "; a change needs a restart"
        print(f"{each.key} = {json.dumps(each.value, ensure_ascii=False)}    # {each.origin}{restart}")


def report_problems(problems: Sequence[ConfigProblem], complain: Callable[[str], None], *, as_json: bool) -> None:
    if as_json:
        found = [{"message": each.message, "file": each.file, "line": each.line or None} for each in problems]
        print(json.dumps({"problems": found}, ensure_ascii=False, indent=2))
        return
    for problem in problems:
        complain(str(problem))


def _facts(setting: ShownSetting) -> dict[str, object]:
    origin = setting.origin
    return {
        "key": setting.key,
        "value": setting.value,
        "source": origin.source,
        "place": origin.place,
        "overridden": [{"source": each.source, "place": each.place} for each in origin.overridden],
        "live": setting.live,
    }
