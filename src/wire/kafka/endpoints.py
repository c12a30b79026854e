"""Where a client is told that brokers are.

A client that has reached one broker on a listener is told the listeners of that name of all. Where
a broker listens on every interface and nobody has said how it is reached, its address has no host.
Then the host is the one by which the client has come, if both brokers are on one machine as far as
the addresses of their gRPC listeners say, else the other's host there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...ids import NO_NODE, NodeId
from ...metadata import BrokerImage, MetadataImage
from .api import Client

_MAPPED = "::ffff:"  # an IPv4 address as a socket of both families has it (RFC 4291, 2.5.5.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A broker as clients of one listener see it."""

    node_id: NodeId
    host: str  # an IPv6 address without brackets
    port: int
    rack: str | None
    is_fenced: bool


def endpoints(
    image: MetadataImage, client: Client, *, asked: NodeId, with_fenced: bool = False
) -> dict[NodeId, Endpoint]:
    """Return the brokers that have a listener of the client's name, by ascending id; `asked` is the
    one that the client has reached."""
    here = image.broker(asked)
    found = {}
    for broker in image.sorted_brokers():
        address = broker.kafka_address(client.listener)
        if address is None or (broker.fenced and not with_fenced):
            continue
        host, _, port = address.rpartition(":")
        found[broker.id] = Endpoint(
            node_id=broker.id,
            host=_plain(host or _host_of(broker, client, here=here)),
            port=int(port),
            rack=broker.rack or None,
            is_fenced=broker.fenced,
        )
    return found


def controller_of(alive: Mapping[NodeId, Endpoint], controller_id: int, asked: NodeId) -> int:
    """Return the broker that shall be asked for changes. Each one relays them; the controller
    itself, if it is among them, answers soonest."""
    for node_id in (NodeId(controller_id), asked, *alive):
        if node_id in alive:
            return node_id
    return NO_NODE


def _host_of(broker: BrokerImage, client: Client, *, here: BrokerImage | None) -> str:
    """Return how a client reaches a broker that listens on every interface."""
    host = broker.grpc_address.rpartition(":")[0]
    if here is None or broker.id == here.id or host == here.grpc_address.rpartition(":")[0]:
        return client.local.rpartition(":")[0]
    return host


def _plain(host: str) -> str:
    """Return a host as answers carry it."""
    host = host.removeprefix("[").removesuffix("]")
    return host.removeprefix(_MAPPED) if "." in host else host
