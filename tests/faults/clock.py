"""A wall clock that jumps, for a daemon and all its shims; steps and tests see the right time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("clock_offset.c")

# The spawner gets a few named variables only. What stands here is what a machine's clock does by itself: it is the
# same for everybody.
_PROGRAM = """
import sys
from toband.supervise.launch import shim_pool
shim_pool._PASSED_ON += ("LD_PRELOAD", "TOBAN_TEST_CLOCK")
from toband.__main__ import main
sys.argv[0] = "toband"
sys.exit(main())
"""


def why_not() -> str:
    return "" if shutil.which("gcc") else "gcc is not installed"


class Clock:
    """Shown wall time is the right one and `offset`."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "offset"
        self._library = directory / "clock.so"
        self.set(0)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE), "-ldl"],
            check=True,
            timeout=60,
        )

    def set(self, offset: float) -> None:
        """Jumps, at once for all processes."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:.0f}\n")
        new.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "TOBAN_TEST_CLOCK": str(self._file)}

    @property
    def program(self) -> list[str]:
        """Starts a daemon that lives by this clock, in the environment above."""
        return [sys.executable, "-c", _PROGRAM]

    def works(self) -> bool:
        """Whether a program in its environment really sees another time."""
        asked = "import time; print(time.time())"
        self.set(7200)
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", asked],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        self.set(0)
        return abs(float(answer.stdout) - time.time() - 7200) < 60
