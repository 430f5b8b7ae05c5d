"""Finds what looks like a secret in the files of the repository: committed_secrets.py [FILE...]; by default, all.

A line that must contain such a text, for example a documented value that opens nothing, ends with
`not a secret: REASON`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LARGEST = 4 << 20

KINDS = {
    "a private key": re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"),
    "a private key in one line": re.compile(r"\bMII[BCEJ][A-Za-z0-9+/]{60}"),
    "a private key of OpenSSH": re.compile(r"\bb3BlbnNzaC1rZXkt"),
    "a token of Toban": re.compile(r"\btoban_[0-9a-f]{16}_[0-9A-Za-z_-]{43}"),
    "a JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{15,}"),
    "a token of GitHub": re.compile(r"\b(?:gh[opsur]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60})"),
    "a key of AWS": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token of Slack": re.compile(r"\bxox[abpr]-[0-9A-Za-z-]{20}"),
    "a key of an AI service": re.compile(r"\bsk-[A-Za-z0-9_-]{32}"),
    "a password in an address": re.compile(
        r"\b[a-z][a-z0-9+]*://[^\s:/@{}$<>'\"]+:(?!password@|\*+@)[^\s:/@{}$<>'\"]{8,}@"
    ),
}
WAIVER = re.compile(r"\bnot a secret: \S")


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Number of the line, and the kind, of each text that looks like a secret."""
    for number, line in enumerate(text.splitlines(), 1):
        for kind, pattern in KINDS.items():
            if pattern.search(line) and not WAIVER.search(line):
                yield number, kind


def committed() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name]


def main(files: Iterable[Path]) -> int:
    wrong = 0
    for path in files:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST:
            continue
        for number, kind in found_in(path.read_text(encoding="utf-8", errors="replace")):
            print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{number}: looks like {kind}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main([Path(each).resolve() for each in sys.argv[1:]] or committed()))
