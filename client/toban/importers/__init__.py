"""Imports workflows from other schedulers: crontabs and systemd timers.

Pure, except for `systemd_units.read_unit`: no other code here opens a file, reads a clock or starts a process.
"""
