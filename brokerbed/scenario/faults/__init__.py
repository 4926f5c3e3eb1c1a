"""The kinds of faults: one file each in `kinds/`, with what a scenario writes and what it does to a network."""
