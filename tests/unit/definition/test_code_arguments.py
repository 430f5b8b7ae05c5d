"""Which arguments of a command an interpreter parses as code."""

from __future__ import annotations

import shlex

import pytest

from toban.definition.scripts.code_arguments import code_arguments


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("bash -c X", ["X"]),
        ("bash -c X bash Y", ["X"]),
        ("/bin/bash -eo pipefail -c X", ["X"]),
        ("sh -ec X name", ["X"]),
        ("sh -c -e X", ["X"]),
        ("bash --norc -c X", ["X"]),
        ("bash script X", []),
        ("bash script -c X", []),
        ("sh -e X", []),
        ("zsh -lc X", ["X"]),
        ("python -c X Y", ["X"]),
        ("/usr/bin/python3.12 -Ic X", ["X"]),
        ("python3 -W error -c X", ["X"]),
        ("python3 -cX", ["-cX"]),
        ("python3 -m module X", []),
        ("python3 script.py -c X", []),
        ("perl -ne X file", ["X"]),
        ("perl -e X -e Y Z", ["X", "Y"]),
        ("ruby -e X", ["X"]),
        ("node --eval X", ["X"]),
        ("node --eval=X", ["--eval=X"]),
        ("node -pe X", ["X"]),
        ("php -r X", ["X"]),
        ("awk X file", ["X"]),
        ("gawk -F , -v a=Y X", ["X"]),
        ("awk -f file X", []),
        ("ssh host", []),
        ("ssh host X Y", ["X", "Y"]),
        ("ssh -p 22 -i key user@host X", ["X"]),
        ("ssh host -t X", ["X"]),
        ("ssh -- host X", ["X"]),
        ("powershell -NoProfile -Command X Y", ["X", "Y"]),
        ("pwsh.exe -c X", ["X"]),
        ("pwsh -File script X", []),
        ("cmd /d /s /c X", ["/c", "X"]),
        ("env A=b sh -c X", ["X"]),
        ("env -i bash -c X", ["X"]),
        ("env -S X", ["X"]),
        ("env printf X", []),
        ("A=b sudo -u www bash -c X", ["X"]),
        ("docker exec web sh -c X", ["X"]),
        ("timeout 5 ssh host X", ["X"]),
        ("find . -exec sh -c X {} +", ["X"]),
        ("su - www -c X", ["X"]),
        ("flock lock -c X", ["X"]),
        ("flock lock sh -c X", ["X"]),
        ("eval X Y", ["X", "Y"]),
        ("echo bash -c X", []),
        ("systemctl restart ssh X Y", []),
        ("", []),
    ],
)
def test_the_code_of_a_command(command: str, code: list[str]) -> None:
    words = shlex.split(command)
    found = code_arguments(words)
    assert [words[place] for place in sorted(found.places)] == code if found else code == []


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("perl -e X {{x}}", "{{x}}"),
        ("perl -ne X {{x}} Y", "{{x}}"),
        ("perl -e X -e Y {{x}}", "{{x}}"),
        ("perl -eX {{x}}", "{{x}}"),
        ("perl -e X -- {{x}}", ""),
        ("perl -e X a{{x}}", ""),
        ("perl -e X file {{x}}", ""),
        ("perl {{x}}", ""),
        ("ruby -e X {{x}}", "{{x}}"),
        ("node -e X {{x}}", "{{x}}"),
        ("node -pe X {{x}}", "{{x}}"),
        ("node --eval=X {{x}}", "{{x}}"),
        ("node --eval X --no-warnings {{x}}", "{{x}}"),
        ("node -e X -- {{x}}", ""),
        ("php -r X {{x}}", "{{x}}"),
        ("php -d a=b -r X -- {{x}}", ""),
        ("sudo -u www perl -e X {{x}}", "{{x}}"),
        ("python3 -c X {{x}}", ""),
        ("bash -c X sh {{x}}", ""),
        ("ssh {{x}} uptime", "{{x}}"),
        ("ssh -p 22 {{x}}", "{{x}}"),
        ("ssh -- {{x}} uptime", ""),
        ("ssh user@{{x}}", ""),
    ],
)
def test_values_that_may_be_options(command: str, option: str) -> None:
    words = shlex.split(command)
    found = code_arguments(words)
    options = found.options if found is not None else frozenset()
    assert [words[place] for place in options] == ([option] if option else [])
    if found is not None and option:
        (place,) = options
        assert found.message(place).endswith("write -- before it")
        assert place in found.places
