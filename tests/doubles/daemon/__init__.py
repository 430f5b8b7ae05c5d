"""A daemon in memory, for tests of its clients: real gRPC on a real socket, and no runs but those of the test."""
