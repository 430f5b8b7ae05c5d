"""gRPC: decode, one call of the engine or the store, encode."""
