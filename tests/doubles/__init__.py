"""Doubles of the ports, for tests of the code that uses them. One for each port; a test adds no other of its own."""
