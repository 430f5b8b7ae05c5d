"""Work on what users wrote, in processes that can be ended: reading definitions, evaluating expressions.

Here is how such a process is started, fed, limited and ended. What it is asked to do is up to the engine.
"""
