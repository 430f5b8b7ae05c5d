"""The daemon put together: build, serve, shut down. The only package that names concrete adapters.

Rules do not belong here; they are in `domain` and `engine`.
"""
