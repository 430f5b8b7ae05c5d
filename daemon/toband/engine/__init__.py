"""The engine: loads, decides with the domain, saves, and only then acts.

Rules that need neither waiting nor I/O belong in `domain`. The database, processes and files are behind `ports`.
"""
