"""`toban version`: the version of this client."""

from __future__ import annotations

from toban import __version__


def version() -> None:
    """Show the version of this client.

    \b
    Example:
      toban version
    """
    print(f"toban {__version__}")
