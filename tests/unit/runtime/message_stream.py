"""The stream that tests of calls and streams use."""

from typing import TypeAlias

from quorumlog.proto.log_pb2 import ProduceRequest, ProduceResponse
from quorumlog.runtime import Channel, Stream
from quorumlog.services import LOG_PRODUCE

Outgoing: TypeAlias = Stream[ProduceRequest, ProduceResponse]


async def open_stream(channel: Channel, *, timeout_ms: int = 0) -> Outgoing:
    """Open the stream that every test uses."""
    return await channel.stream(LOG_PRODUCE, timeout_ms=timeout_ms)
