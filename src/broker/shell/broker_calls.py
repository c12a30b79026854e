"""Calls to other brokers by node id."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from ...errors import CoordinatorNotAvailable
from ...ids import NodeId
from ...metadata.image import MetadataImage
from ...runtime import Channel, ClientIdentity, Method, Network

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
        self,
        node_id: NodeId,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int,
        on_behalf_of: ClientIdentity | None = None,
    ) -> R:
        """Call a broker; raise CoordinatorNotAvailable, and the errors of `Channel.call`."""
        broker = self._image().broker(node_id)
        if broker is None:
            raise CoordinatorNotAvailable(f"broker {node_id}: not registered any more; retry")
        address = broker.node_address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._network.channel(address)
            await self._close_others()
        return await channel.call(method, request, timeout_ms=timeout_ms, on_behalf_of=on_behalf_of)

    async def _close_others(self) -> None:
        """Close the channels to addresses that no broker has any more."""
        present = {broker.node_address for broker in self._image().sorted_brokers()}
        for address in [each for each in self._channels if each not in present]:
            await self._channels.pop(address).close()
