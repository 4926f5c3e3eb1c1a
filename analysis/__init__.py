"""What theory predicts and what the log of a run says. Sees scenarios and the log, never a broker's inside."""
