"""The script languages: the reader of each, and its references to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toban.definition.model.step_model import JobType
from toban.definition.scripts import cmd_text, powershell_text, shell_text
from toban.definition.scripts.cmd_text import read_cmd
from toban.definition.scripts.powershell_reader import read_powershell
from toban.definition.scripts.script import Form, Script
from toban.definition.scripts.shell_reader import read_script


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """`reference` takes form, name and value of a variable; raises ValueError if none is safe."""

    read: Callable[[str], Script]
    reference: Callable[[Form, str, str], str]


LANGUAGES: Mapping[JobType, Language] = {
    JobType.SHELL: Language(read=read_script, reference=shell_text.reference),
    JobType.CMD: Language(read=read_cmd, reference=cmd_text.reference),
    JobType.POWERSHELL: Language(read=read_powershell, reference=powershell_text.reference),
}
