"""Runs code on user input in processes that can be killed: reading definitions, evaluating expressions.

This package starts, feeds, limits and ends these processes. The engine decides what they compute.
"""
