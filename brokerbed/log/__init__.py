"""The message log: what a record holds, and how files of records become tables."""
