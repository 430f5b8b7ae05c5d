"""The command line `toban`: `command_line` assembles it, `commands/X.py` has `toban X`."""

import gc
import sys


def main() -> int:
    """Entry point of the console script."""
    if sys.argv[1:] in (["version"], ["--version"]):
        # Scripts ask for it often: answered without loading the rest.
        from toban import __version__

        print(f"toban {__version__}")
        return 0
    # Nothing becomes garbage while modules are loaded; a session turns collection on again.
    gc.disable()
    try:
        from toban.cli.command_line import main as run

        return run()
    except KeyboardInterrupt:
        # Ctrl-C while the program was loading.
        return 130
