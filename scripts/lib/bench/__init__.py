"""`scripts/bench`: what Toban costs, against floors that are measured beside it. docs/bench.md says how to read it."""
