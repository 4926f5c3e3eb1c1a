"""A run as data: its comparison and its message log in pandas.

Cells begin with `# %%`. Editors that support notebooks run them one by one; `python open_a_run.py` runs all of them.
The run may be a sweep, with or without several seeds. It must have publishers and subscribers, and must be analysed.
"""

# %% Where the run is
import json
from pathlib import Path

import pandas as pd

run = Path("runs/latest")  # or any other run directory

# %% The comparison: one row per point of a sweep, metric and labels; several seeds are pooled
compared = pd.read_parquet(run / "analysis" / "compared.parquet")
totals = compared[compared.labels == ""]
print(totals.pivot(index="point", columns="metric", values="measured"))

# %% Labels are text, such as `publisher=sensor,subscriber=phone`; here they become columns
delays = compared[compared.metric == "delay.end_to_end"]
names = delays.labels.str.extract("publisher=(?P<publisher>[^,]*),subscriber=(?P<subscriber>.*)")
delays = delays.join(names)
print(delays[["point", "publisher", "subscriber", "predicted", "measured", "ci_low", "ci_high"]])

# %% Every single run (of one point and one seed) is a directory with a message log
logs = sorted(run.glob("**/log"))
folder = logs[0].parent
description = json.loads((folder / "run.json").read_text())
events = pd.read_parquet(folder / "log")  # the column `broker` comes from the name of a file's folder
print(f"{folder}: seed {description['seed']}, {len(events):,} events")

# %% Model time is in nanoseconds. Negative times come before time zero, when brokers start and links connect
begin_ns, end_ns = description["measured_ns"]
before = events[events.time_ns < 0]
measured = events[(events.time_ns >= begin_ns) & (events.time_ns < end_ns)]
seconds = (end_ns - begin_ns) / 1e9
print(f"{len(before):,} events before time zero, {len(measured):,} in {seconds:g} s of measured time")

# %% Control messages over links, per second
control = measured.event.isin(["link_subscribe", "link_unsubscribe"]).sum() / seconds
print(f"rate.control: {control:g}/s")


# %% End-to-end delays, from the events of the testbed's own clients, which are in the folder broker=clients
def end_to_end(place: Path) -> pd.DataFrame:
    """One row per message and subscriber, with the times of publication and processing, and the delay in seconds."""
    is_client = [("broker", "==", "clients")]
    columns = ["time_ns", "event", "client", "origin", "sequence"]
    rows = pd.read_parquet(place / "log", columns=columns, filters=is_client)
    published = rows[rows.event == "published"].rename(columns={"time_ns": "published_ns"})
    processed = rows[rows.event == "processed"].rename(columns={"time_ns": "processed_ns", "client": "subscriber"})
    key = ["origin", "sequence"]  # the publisher, and the publisher's number of the message
    messages = published[[*key, "published_ns"]].merge(processed[[*key, "subscriber", "processed_ns"]], on=key)
    messages["delay_s"] = (messages.processed_ns - messages.published_ns) / 1e9
    return messages.rename(columns={"origin": "publisher"})


# %% The mean delay of every single run. A delay counts if it ends in measured time
means = []
for log in logs:
    about = json.loads((log.parent / "run.json").read_text())
    begin_ns, end_ns = about["measured_ns"]
    messages = end_to_end(log.parent)
    messages = messages[(messages.processed_ns >= begin_ns) & (messages.processed_ns < end_ns)]
    by_pair = messages.groupby(["publisher", "subscriber"]).delay_s.agg(["mean", "count"]).reset_index()
    means.append(by_pair.assign(**about["scenario"]["at"] | {"seed": about["seed"]}))
by_run = pd.concat(means, ignore_index=True)
print(by_run)
