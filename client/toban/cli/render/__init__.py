"""Answers for people and scripts: tables, JSON, states, reports. Nothing here makes a call."""
