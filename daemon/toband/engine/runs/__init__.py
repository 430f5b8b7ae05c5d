"""Runs from their creation to their end: intake, queue, registry, recovery, and control by clients.

How a single active run moves and launches its steps is in `execution`. Schedules and events only ask for runs here.
"""
