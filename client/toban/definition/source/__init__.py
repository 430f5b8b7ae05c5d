"""Text to nodes: YAML with positions, and its problems. Does not know the meaning of fields."""
