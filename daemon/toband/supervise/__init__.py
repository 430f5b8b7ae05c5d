"""Starting processes once, watching them, ending them, and keeping what they printed."""
