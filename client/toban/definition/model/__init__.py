"""A workflow as the daemon knows it: normalised and immutable. No parsing, no checks."""
