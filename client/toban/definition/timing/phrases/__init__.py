"""Times in words, English and Japanese: tokens, grammars, and the meaning of a phrase at a given time."""
