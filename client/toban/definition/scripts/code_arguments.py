"""The arguments of a command that an interpreter parses as code: the text after `bash -c`, or after the host of `ssh`.

Such an argument must not contain a template, since its value would be code too. Neither may a template follow where the
interpreter still reads options, since a value such as `-esystem(…)` would be one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_TEMPLATE = "{{"
_VERSION = re.compile(r"[0-9.]+\Z")
_SSH_VALUES = "BbcDEeFIiJLlmOoPpQRSWw"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "pdksh", "yash", "zsh", "fish", "csh", "tcsh"})
# Programs that run the command behind their own options.
_WRAPPERS = frozenset(
    {
        *("env", "sudo", "doas", "nohup", "setsid", "time", "nice", "ionice", "timeout", "chroot", "stdbuf", "xargs"),
        *("exec", "command", "builtin", "docker", "podman", "kubectl", "nsenter", "unshare", "systemd-run", "chronic"),
        *("flock", "taskset", "setpriv", "strace", "busybox", "find", "parallel", "chrt", "runuser", "su", "script"),
    }
)


@dataclass(frozen=True, slots=True)
class CodeArguments:
    """`places` are indices of the words that `program` parses; `advice` is what to write instead.

    `options` are indices of words that begin with a template and may be read as options.
    """

    program: str
    places: frozenset[int]
    advice: str
    options: frozenset[int] = frozenset()

    def message(self, place: int) -> str:
        """Why there must be no template in this word."""
        if place in self.options:
            return (
                f"{self.program} reads a value that begins with - as an option, which may be code: write -- before it"
            )
        return (
            f"{self.program} parses this argument as code, and the value would become part of it: {self.advice}, "
            "or write {{ raw(…) }} if the value may be code"
        )


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """`find` yields the places of code among the words that follow the program, `options` those of `CodeArguments`."""

    find: Callable[[Sequence[str]], Iterator[int]]
    advice: str
    options: Callable[[Sequence[str]], Iterator[int]] | None = None


def code_arguments(words: Sequence[str]) -> CodeArguments | None:
    """The code in one command, whose words are without quotes; None if it has no known interpreter."""
    begin = next((at for at, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    at = begin
    wrapped = False
    while at < len(words):
        program = _program(words[at])
        found = _INTERPRETERS.get(program)
        places = (
            frozenset(at + 1 + place for place in found.find(words[at + 1 :])) if found is not None else frozenset()
        )
        options = found.options(words[at + 1 :]) if found is not None and found.options is not None else ()
        begun = frozenset(at + 1 + place for place in options)
        if found is not None and (places or begun):
            places = frozenset(place for place in places | begun if place < len(words))
            return CodeArguments(program, places, found.advice, begun)
        wrapped = wrapped or program in _WRAPPERS
        if not wrapped:
            return None
        at += 1
    return None


def _program(word: str) -> str:
    """`/usr/bin/python3.12` is python."""
    name = posixpath.basename(word.replace("\\", "/")).lower().removesuffix(".exe")
    return _VERSION.sub("", name) or name


def _options(words: Sequence[str], values: str = "") -> Iterator[tuple[int, str]]:
    """The options in front of the first other word; `values` are letters of short options that take the next word."""
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+") and len(words[at]) > 1:
        if words[at] == "--":
            return
        yield at, words[at]
        at += 2 if words[at][-1] in values and not words[at].startswith("--") else 1


def _first_other(words: Sequence[str], values: str = "") -> int:
    at = 0
    for place, word in _options(words, values):
        at = place + (2 if word[-1] in values and not word.startswith("--") else 1)
    return at + 1 if at < len(words) and words[at] == "--" else at


def _of_shell(words: Sequence[str]) -> Iterator[int]:
    if any("c" in option and not option.startswith(("--", "+")) for _, option in _options(words, "oO")):
        yield _first_other(words, "oO")


def _of_flags(
    letters: str, *names: str, values: str = "", attached: bool = True
) -> Callable[[Sequence[str]], Iterator[int]]:
    """Code is the word after one of these options, or, `attached`, the rest of the option's own word."""

    def find(words: Sequence[str]) -> Iterator[int]:
        for at, option in _options(words, values + letters):
            name = option.partition("=")[0]
            if name in names:
                yield at if "=" in option else at + 1
            elif not option.startswith("--"):
                letter = next((place for place, char in enumerate(option) if char in letters), None)
                if letter is not None:
                    yield at if attached and letter < len(option) - 1 else at + 1

    return find


def _after_code(
    letters: str, *names: str, values: str = "", attached: bool = True
) -> Callable[[Sequence[str]], Iterator[int]]:
    """The word after the code of such an option, if it begins with a template and may be an option."""

    def find(words: Sequence[str]) -> Iterator[int]:
        at, seen = 0, False
        while at < len(words) and words[at] != "--" and words[at][:1] == "-":
            word = words[at]
            long = word.startswith("--")
            place = -1 if long else next((n for n, char in enumerate(word) if char in letters), -1)
            if word.partition("=")[0] in names:
                seen, alone = True, "=" not in word
            elif place > 0:
                seen, alone = True, not attached or place == len(word) - 1
            else:
                alone = not long and word[-1] in values
            at += 2 if alone else 1
        if seen and at < len(words) and words[at].startswith(_TEMPLATE):
            yield at

    return find


def _host(words: Sequence[str]) -> Iterator[int]:
    """The host of ssh, if it begins with a template and no `--` is before it."""
    host = _first_other(words, _SSH_VALUES)
    if host < len(words) and words[host].startswith(_TEMPLATE) and "--" not in words[:host]:
        yield host


def _anywhere(letters: str, *names: str) -> Callable[[Sequence[str]], Iterator[int]]:
    """The same for programs whose options may follow other words."""

    def find(words: Sequence[str]) -> Iterator[int]:
        for at, word in enumerate(words):
            name, sign, _ = word.partition("=")
            if name in names:
                yield at if sign else at + 1
            elif word[:1] == "-" and not word.startswith("--") and word[-1] in letters:
                yield at + 1

    return find


def _of_awk(words: Sequence[str]) -> Iterator[int]:
    options = [option for _, option in _options(words, "vFfe")]
    if not any(option.startswith(("-f", "--file")) for option in options):
        yield _first_other(words, "vFfe")
    yield from _of_flags("e", "--source", values="vFf")(words)


def _of_ssh(words: Sequence[str]) -> Iterator[int]:
    host = _first_other(words, _SSH_VALUES)
    # Options may also follow the host.
    after = host + 1 + _first_other(words[host + 1 :], _SSH_VALUES)
    yield from range(after, len(words))


def _of_powershell(words: Sequence[str]) -> Iterator[int]:
    for at, word in enumerate(words):
        name = word.lower().lstrip("-/")
        if word[:1] in "-/" and name and ("command".startswith(name) or "commandwithargs".startswith(name)):
            yield from range(at + 1, len(words))
            return
        if word[:1] in "-/" and name and "file".startswith(name):
            return


def _of_cmd(words: Sequence[str]) -> Iterator[int]:
    for at, word in enumerate(words):
        if word[:2].lower() in ("/c", "/k", "/r"):
            yield from range(at, len(words))
            return


def _all(words: Sequence[str]) -> Iterator[int]:
    yield from range(len(words))


_TO_SHELL = 'use "$1" in the code and give the template as a further argument (-c \'echo "$1"\' sh {{ … }})'
_TO_ARGUMENTS = "let the code read its arguments, and give the template as a further argument, after --"
_TO_PYTHON = "use sys.argv[1] in the code, and give the template as a further argument"
_TO_STDIN = "pass the value through stdin, and let the remote command read it"
_TO_KIND = "use job_type powershell or cmd, where values are never code"
_TO_ENV = "set it in env, and use the variable in the code"

_INTERPRETERS = {
    **dict.fromkeys(_SHELLS, _Interpreter(_of_shell, _TO_SHELL)),
    **dict.fromkeys(("python", "pypy", "pythonw"), _Interpreter(_of_flags("c", values="WX"), _TO_PYTHON)),
    "perl": _Interpreter(_of_flags("eE"), _TO_ARGUMENTS, _after_code("eE")),
    "ruby": _Interpreter(_of_flags("e"), _TO_ARGUMENTS, _after_code("e")),
    **dict.fromkeys(
        ("node", "nodejs", "bun"),
        _Interpreter(
            _of_flags("ep", "--eval", "--print", attached=False),
            _TO_ARGUMENTS,
            _after_code("ep", "--eval", "--print", attached=False),
        ),
    ),
    "php": _Interpreter(
        _of_flags("rBRE", "--run", values="dc"), _TO_ARGUMENTS, _after_code("rBRE", "--run", values="dc")
    ),
    "lua": _Interpreter(_of_flags("e", values="l"), _TO_ENV, _after_code("e", values="l")),
    "rscript": _Interpreter(_of_flags("e"), _TO_ENV, _after_code("e")),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk"), _Interpreter(_of_awk, 'set it in env, and use ENVIRON["NAME"] in the code')
    ),
    "ssh": _Interpreter(_of_ssh, _TO_STDIN, _host),
    **dict.fromkeys(("powershell", "pwsh"), _Interpreter(_of_powershell, _TO_KIND)),
    "cmd": _Interpreter(_of_cmd, _TO_KIND),
    **dict.fromkeys(("eval", "watch"), _Interpreter(_all, "leave it out, and write the command itself")),
    **dict.fromkeys(("su", "runuser", "flock", "script"), _Interpreter(_anywhere("c", "--command"), _TO_ENV)),
    "env": _Interpreter(_of_flags("S", "--split-string", values="uC"), "write the words as separate arguments"),
}

INTERPRETERS = frozenset(_INTERPRETERS)
"""The programs whose code is known."""
