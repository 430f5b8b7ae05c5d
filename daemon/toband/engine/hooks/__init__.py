"""Hooks: their administration, and the deliveries of other systems to them.

What a delivery starts is an event, which `engine/events` stores and resolves.
"""
