"""Benchmarks, which print figures and ratios and assert nothing."""
