"""Benchmarks: figures and ratios, printed; nothing here is asserted."""
