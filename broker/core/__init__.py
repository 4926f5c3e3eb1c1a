"""The broker as a state machine without I/O: bytes or packets and the time go in, output and deadlines come out."""
