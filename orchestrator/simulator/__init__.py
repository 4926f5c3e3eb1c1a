"""The virtual ground: the broker cores on a simulated network and clock; deterministic."""
