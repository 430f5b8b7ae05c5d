"""Text to nodes: YAML with positions, and the problems found in it. The meaning of fields is not known here."""
