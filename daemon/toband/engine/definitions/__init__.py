"""Stored definitions of workflows and jobs, and the definition files that they are read from.

Checking a definition by itself is `toban.definition`; here it meets the stored jobs, users and children.
"""
