"""The live page of a run on real brokers: what is measured while it runs, and faults at the push of a button."""
