"""One active run: its actor, the dispatch of its steps, and everything a step needs before and after its process.

Nothing here knows about other runs of the same workflow; that is the queue in `runs`.
"""
