"""Calls to other brokers by node id."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from ....errors import BrokerIdNotRegistered
from ....ids import NodeId
from ....metadata.image import MetadataImage
from ....runtime import Channel, Method, Network

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class BrokerCalls:
    """Calls brokers at the addresses in the metadata. Belongs to the loop's thread."""

    def __init__(self, network: Network, image: Callable[[], MetadataImage]) -> None:
        self._network = network
        self._image = image
        self._channels: dict[str, Channel] = {}  # by address

    async def call(
        self, node_id: NodeId, method: Method[Q, R], request: Q, *, timeout_ms: int
    ) -> R:
        """Call a broker; raise BrokerIdNotRegistered, and the errors of
        `Channel.call`."""
        broker = self._image().broker(node_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"broker {node_id}: not registered any more; retry")
        address = broker.grpc_address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._network.channel(address)
        return await channel.call(method, request, timeout_ms=timeout_ms)
