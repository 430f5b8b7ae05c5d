"""Secrets: encryption, the key, grants, and values for steps.

Where keys and external stores are is behind ports; which templates may use secrets is a matter of `toban.definition`.
"""
