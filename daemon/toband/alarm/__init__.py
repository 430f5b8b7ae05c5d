"""The alarm clock: the only place that knows APScheduler."""
