"""Exit codes of `toband`."""

FAILED = 1
USAGE = 2
REPLACED = 3
"""Another daemon took the database over."""
