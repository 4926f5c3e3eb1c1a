"""Fuzzing: targets.py says what is fuzzed, `python -m tests.fuzz` does it for as long as one likes."""
