"""Supervision on Windows: the same protocol with Job Objects, events and file locks in place of signals and flock."""
