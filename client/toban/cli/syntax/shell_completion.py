"""Shell completion: the scripts for bash, zsh and fish, and the words that they ask for.

A script calls the program with the variable `_NAME_COMPLETE`, the words of the line in COMP_WORDS, and the number of
the word that is being typed in COMP_CWORD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toban.cli.syntax.declare import Command, CommandContext, Completer, Group, Option, summary
from toban.cli.syntax.parameters import Parameter, parameters
from toban.cli.syntax.parse import HELP, Parser
from toban.cli.syntax.program import Program

_BASH = """\
_{name}_completion() {{
    local IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD {variable}=complete_bash "$1"))
    return 0
}}
complete -o bashdefault -o default -F _{name}_completion {name}
"""
_ZSH = """\
#compdef {name}
_{name}_completion() {{
    local -a found
    found=("${{(@f)$(COMP_WORDS="${{(F)words[1,CURRENT]}}" COMP_CWORD=$((CURRENT - 1)) \
{variable}=complete_zsh ${{words[1]}})}}")
    if [[ -n "${{found[1]}}" ]]; then _describe '' found; else _files; fi
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _{name}_completion "$@"; else compdef _{name}_completion {name}; fi
"""
_FISH = """\
function _{name}_completion
    set -lx COMP_WORDS (string join \\n -- (commandline -opc) (commandline -ct))
    set -lx COMP_CWORD (count (commandline -opc))
    set -l found ({variable}=complete_fish {name})
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command {name} --no-files --arguments "(_{name}_completion)"
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
SHELLS = tuple(_SCRIPTS)


def variable(name: str) -> str:
    """The environment variable by which a script asks the program `name`."""
    return f"_{name.upper()}_COMPLETE"


def script(name: str, shell: str) -> str:
    return _SCRIPTS[shell].format(name=name, variable=variable(name))


def answer(program: Program, environment: Mapping[str, str]) -> str | None:
    """What to print for a call by one of the scripts; None if this is not such a call."""
    shell = environment.get(variable(program.name), "").removeprefix("complete_")
    if not shell:
        return None
    words = _split(environment.get("COMP_WORDS", ""))
    number = environment.get("COMP_CWORD", "")
    index = int(number) if number.isdecimal() else len(words) - 1
    typed = words[index] if 0 < index < len(words) else ""
    found = complete(program, words[1:index], typed)
    match shell:
        case "zsh":
            lines = [f"{word.replace(':', chr(92) + ':')}:{text}" if text else word for word, text in found]
        case "fish":
            lines = [f"{word}\t{text}" if text else word for word, text in found]
        case _:
            lines = [word for word, _ in found]
    return "\n".join(lines)


def complete(program: Program, before: Sequence[str], typed: str) -> list[tuple[str, str]]:
    """The words that may follow, each with its help."""
    context = CommandContext(program)
    found = program.find(context, before, lenient=True)
    command = found.command
    own = parameters(command.function) if isinstance(command, Command) else []
    parser = Parser(context, program.shared, own, lenient=True)
    awaited = _awaited(parser, before)
    if awaited is not None:
        parser.bind(parser.parse(found.rest[:-1]))
        return _values(awaited, context, typed)
    rest = parser.parse(found.rest)
    parser.bind(rest)
    name, equals, text = typed.partition("=")
    if equals and name in parser.options:
        return [(f"{name}={word}", note) for word, note in _values(parser.options[name][0], context, text)]
    if typed.startswith("-"):
        names = {name: parameter.spec.help for name, (parameter, _) in parser.options.items()}
        names |= dict.fromkeys(HELP, "Show this message and exit.")
        return [(name, note) for name, note in sorted(names.items()) if name.startswith(typed)]
    if command is None:
        return [(entry.name, entry.summary) for entry in program.entries.values() if entry.name.startswith(typed)]
    if isinstance(command, Group):
        known = command.commands.items()
        return [(verb, summary(each.help)) for verb, each in known if verb.startswith(typed)]
    arguments = [each for each in own if not isinstance(each.spec, Option)]
    at = min(len(rest), len(arguments) - 1)
    if at < 0 or (len(rest) >= len(arguments) and not arguments[-1].many):
        return []
    return _values(arguments[at], context, typed)


def _awaited(parser: Parser, before: Sequence[str]) -> Parameter | None:
    """The option whose value is being typed."""
    last = before[-1] if before else ""
    found = parser.options.get(last)
    return found[0] if found is not None and not found[0].flag else None


def _values(parameter: Parameter, context: CommandContext, typed: str) -> list[tuple[str, str]]:
    if parameter.choices:
        return [(choice, "") for choice in parameter.choices if choice.startswith(typed)]
    ask: Completer | None = parameter.spec.autocompletion
    if ask is None:
        return []
    needs_context = ask.__code__.co_argcount > 1
    return [(word, "") for word in (ask(context, typed) if needs_context else ask(typed))]


def _split(line: str) -> list[str]:
    """The words of a line that may still be incomplete; bash passes quotes as they are typed."""
    import shlex

    words: list[str] = []
    for part in line.split("\n") if "\n" in line else line.split(" "):
        lexer = shlex.shlex(part, posix=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            words += list(lexer) or [""]
        except ValueError:
            words.append(part.lstrip("\"'"))
    return words
