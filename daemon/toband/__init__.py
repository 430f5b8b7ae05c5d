"""The daemon: API, engine, store and supervision."""

__version__ = "0.1.0"
