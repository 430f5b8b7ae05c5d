"""`python -m toban.cli`: the same as `toban`."""

import sys

from toban.cli import main

if __name__ == "__main__":
    sys.exit(main())
