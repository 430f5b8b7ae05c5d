"""The processes between the daemon and a step: spawner and shim. Standard library only.

A shim outlives the daemon and is forked by the thousand, so nothing here imports the rest of the daemon or a package.
"""
