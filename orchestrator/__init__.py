"""Scenarios, the grounds they run on, and the command line."""
