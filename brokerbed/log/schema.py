"""The message log as analysis sees it: one row per event of one message and one client. Declared once."""

import pyarrow as pa

EVENTS = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),  # in the log of this broker, over all its lives
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("broker", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),  # the kinds of brokerbed/log/record.py, `routed` spelt out
        pa.field("origin", pa.string()),  # where the message entered the tree; null where the event has no message
        pa.field("sequence", pa.int64()),  # its number there: origin.sequence is its identity
        pa.field("number", pa.int32()),  # `identified`: the publisher's own, which clients log as `sequence`
        pa.field("client", pa.string()),
        pa.field("topic", pa.string()),  # or filter
        pa.field("size", pa.int32(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("reason", pa.int16(), nullable=False),  # a Reason when dropped, a reason code of MQTT otherwise
        pa.field("flags", pa.int8(), nullable=False),
    ]
)
