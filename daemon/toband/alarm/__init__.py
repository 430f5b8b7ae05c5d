"""The alarm clock: the only package that imports APScheduler."""
