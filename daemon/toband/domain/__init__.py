"""Pure rules: what a run is and how it moves. No I/O, no clock, no asyncio."""
