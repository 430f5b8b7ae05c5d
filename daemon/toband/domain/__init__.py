"""Pure rules: the model of a run and its state transitions. No I/O, no clock, no asyncio."""
