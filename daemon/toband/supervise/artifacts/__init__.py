"""Files that steps hand on: collected into the context directory, selected, copied, and laid out in workspaces."""
