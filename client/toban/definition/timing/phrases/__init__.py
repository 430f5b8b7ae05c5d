"""Times in words, English and Japanese: tokens, grammars, and what a phrase means at a given time."""
