"""The daemon: API, engine, store and supervision. Its version is that of `toban`: both are one distribution.

Imports nothing: the spawner and the shims load it with the standard library only.
"""
