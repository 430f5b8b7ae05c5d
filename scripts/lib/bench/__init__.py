"""`scripts/bench`: measures Toban's cost against floors, the same work without Toban. See docs/bench.md."""
