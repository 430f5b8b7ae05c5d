"""Toban's events: stored, matched against workflows, and turned into runs; changes of watched paths included.

Inputs of the state machine are something else: `domain.run_events`.
"""
