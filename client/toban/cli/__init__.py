"""The command line `toban`. One module per noun; `app` puts them together."""

import sys


def main() -> int:
    """Entry point of the console script."""
    if sys.argv[1:] in (["version"], ["--version"]):
        # Asked by scripts again and again: answered without loading the rest.
        from toban import __version__

        print(f"toban {__version__}")
        return 0
    try:
        from toban.cli.command_line import main as carry_out

        return carry_out()
    except KeyboardInterrupt:
        # Ctrl-C so early that not even the program was loaded.
        return 130
