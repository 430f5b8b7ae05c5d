"""How `toband` ends."""

FAILED = 1
USAGE = 2
REPLACED = 3
"""Another daemon has taken the database over."""
