"""What the message log says, as functions from DataFrames to DataFrames: no session, no files, no Python per row.

`events` is the log with the number of the `run` that each row belongs to, `bin_ns`, by which moments find their
interval, and `input`, the event at which brokers of that run route a message. Measurements are `cells` with the columns
run, point, metric, first, second, copy, batch, x and n. `first` and `second` are the values of a row's labels (empty
for a total), `copy` is the copy of the peers (-1 where there is none), and `batch` is the part of the compared time.
The measured value is the sum of x divided by the sum of n.
"""
