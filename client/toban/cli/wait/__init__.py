"""Following runs until they end: live on a terminal, in plain lines elsewhere."""
