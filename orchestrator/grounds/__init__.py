"""Where experiments run: on a simulated network, as local processes, in containers."""
