"""Toban's thin client: stubs, SDK, command line and the definition format."""

__version__ = "0.1.0"
