"""The daemon: API, engine, store and supervision. Client and daemon are one distribution with one version."""

from toban import __version__ as __version__
