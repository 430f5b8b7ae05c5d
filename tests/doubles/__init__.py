"""Doubles of the daemon's ports that tests share: clock, store, launcher, disk, sandbox."""
