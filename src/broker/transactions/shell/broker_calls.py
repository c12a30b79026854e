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
    """Calls brokers at the addresses in the metadata. Belongs to the loop's thread. The network
    closes the channels at its end."""

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
            await self._close_others()
        return await channel.call(method, request, timeout_ms=timeout_ms)

    async def _close_others(self) -> None:
        """Close the channels to addresses that no broker has any more."""
        present = {broker.grpc_address for broker in self._image().sorted_brokers()}
        for address in [each for each in self._channels if each not in present]:
            await self._channels.pop(address).close()
