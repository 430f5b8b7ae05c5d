"""Artifacts: files passed between steps, collected into the context directory, and placed in workspaces."""
