"""What remains of ended runs: which are removed when, their sizes, and the limit of all logs together."""
