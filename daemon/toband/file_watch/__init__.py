"""Notices that files change."""
