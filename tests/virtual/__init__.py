"""The virtual ground: scenarios run on simulated networks, and what their logs say."""
