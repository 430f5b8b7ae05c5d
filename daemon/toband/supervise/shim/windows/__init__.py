"""The shim on Windows: the same protocol with job objects, events and file locks instead of signals and flock."""
