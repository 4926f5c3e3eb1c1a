"""Runs the broker core on asyncio, with sockets, files and the clock. All code that waits is here."""
