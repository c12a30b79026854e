"""Calls of a broker to the others by node id."""

from typing import Any, cast

from quorumlog import simulation
from quorumlog.broker.shell.broker_calls import BrokerCalls
from quorumlog.ids import NodeId
from quorumlog.metadata import EMPTY_IMAGE, DeltaBuilder
from quorumlog.metadata.image import MetadataImage
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.runtime import Channel, Network, Runtime


class Addresses:
    """A `Network` that records its channels; each call returns the address."""

    def __init__(self) -> None:
        self.open: set[str] = set()

    def channel(self, address: str) -> Channel:
        self.open.add(address)
        return cast(Channel, _Line(self, address))


class _Line:
    def __init__(self, network: Addresses, address: str) -> None:
        self._network = network
        self._address = address

    async def call(self, method: Any, request: Any, **options: Any) -> str:
        assert self._address in self._network.open
        return self._address

    async def close(self) -> None:
        self._network.open.remove(self._address)


def image_of(before: MetadataImage, number: int, address: str) -> MetadataImage:
    builder = DeltaBuilder(before)
    record = pb.MetadataRecord(
        broker=pb.BrokerRecord(id=number, incarnation_id=b"i" * 16, grpc_address=address)
    )
    builder.replay(record, offset=before.offset + 1, epoch=1)
    return builder.build().after


def test_channels_to_former_addresses_are_closed() -> None:
    network = Addresses()
    images = [image_of(image_of(EMPTY_IMAGE, 1, "a:1"), 2, "b:1")]
    images.append(image_of(images[0], 2, "c:1"))

    async def main(runtime: Runtime) -> None:
        calls = BrokerCalls(cast(Network, network), lambda: images[0])
        method: Any = None
        request: Any = None
        for number, address in ((1, "a:1"), (2, "b:1")):
            assert await calls.call(NodeId(number), method, request, timeout_ms=1) == address
        assert network.open == {"a:1", "b:1"}
        del images[0]
        assert await calls.call(NodeId(2), method, request, timeout_ms=1) == "c:1"
        assert network.open == {"a:1", "c:1"}

    simulation.run(main)
