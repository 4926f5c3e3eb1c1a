"""The broker core on asyncio: sockets, files, the clock. Everything that waits is here."""
