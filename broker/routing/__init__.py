"""The routing algorithms: which subscriptions brokers announce to one another. Pure code without I/O."""
