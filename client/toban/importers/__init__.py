"""Workflows from what another scheduler has: crontabs and systemd timers.

Pure, but for `units.read_unit`: nothing else opens a file, looks at a clock or starts anything.
"""
