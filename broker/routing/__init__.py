"""How notifications and subscriptions travel between brokers: pure functions and tables, no I/O."""
