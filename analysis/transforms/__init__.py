"""What the message log says, as functions from DataFrames to DataFrames: no session, no files, no Python per row.

`events` is the log with the number of the `run` that each row is of, and `bin_ns`, by which moments find their
interval. Measures are `cells`: (run, point, metric, first, second, unit, batch, x, n), where first and second are the
values of a row's labels, a unit is a part of a run that counts as one observation (a batch of time, or a copy of the
peers), and the measured value is the sum of x over that of n.
"""
