"""Predictions and measurements. The analysis knows scenarios and message logs, never the inside of a broker."""
