"""The live page of a run on real brokers: measurements so far, and buttons that inject faults."""
