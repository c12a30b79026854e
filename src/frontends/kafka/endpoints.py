"""Broker addresses as clients see them.

A client of a listener gets the addresses of all brokers' listeners of the same name. A broker that
listens on every interface without an advertised address has no host. For such a broker, the host is
the one through which the client connected if the gRPC addresses of both brokers name the same host;
otherwise it is the host of that broker's gRPC address.

Produce and Fetch return the current leader, with its endpoint, to a client that asked another
broker (KIP-951).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import NotLeaderOrFollower, QuorumlogError
from ...ids import NO_NODE, NodeId
from ...metadata import BrokerImage, MetadataImage
from .api import BrokerContext, Client
from .codecs.leaders import CurrentLeader, NodeEndpoint

_MAPPED = "::ffff:"  # the prefix of an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """A broker as clients of one listener see it."""

    node_id: NodeId
    host: str  # an IPv6 address without brackets
    port: int
    rack: str | None
    is_fenced: bool


def endpoints(
    image: MetadataImage, client: Client, *, asked: NodeId, with_fenced: bool = False
) -> dict[NodeId, BrokerEndpoint]:
    """Return the brokers that have a listener of the client's listener name, by ascending id.
    `asked` is the broker that received the request."""
    here = image.broker(asked)
    found = {}
    for broker in image.sorted_brokers():
        address = broker.kafka_address(client.listener)
        if address is None or (broker.fenced and not with_fenced):
            continue
        host, _, port = address.rpartition(":")
        found[broker.id] = BrokerEndpoint(
            node_id=broker.id,
            host=_plain(host or _host_of(broker, client, here=here)),
            port=int(port),
            rack=broker.rack or None,
            is_fenced=broker.fenced,
        )
    return found


def controller_of(alive: Mapping[NodeId, BrokerEndpoint], controller_id: int, asked: NodeId) -> int:
    """Return the broker to which clients send changes. Every broker forwards them; the active
    controller, if it is among them, avoids the hop."""
    for node_id in (NodeId(controller_id), asked, *alive):
        if node_id in alive:
            return node_id
    return NO_NODE


def _host_of(broker: BrokerImage, client: Client, *, here: BrokerImage | None) -> str:
    """Return the host by which a client reaches a broker that listens on every interface."""
    host = broker.grpc_address.rpartition(":")[0]
    if here is None or broker.id == here.id or host == here.grpc_address.rpartition(":")[0]:
        return client.local.rpartition(":")[0]
    return host


def _plain(host: str) -> str:
    """Return a host without brackets and without the IPv4-mapped prefix."""
    host = host.removeprefix("[").removesuffix("]")
    return host.removeprefix(_MAPPED) if "." in host else host


def current_leader(error: QuorumlogError) -> CurrentLeader | None:
    """Return the leader that an error names, or None."""
    if isinstance(error, NotLeaderOrFollower) and error.leader_id != NO_NODE:
        return CurrentLeader(error.leader_id, error.leader_epoch)
    return None


def leader_endpoints(
    broker: BrokerContext, client: Client, errors: Sequence[QuorumlogError]
) -> list[NodeEndpoint]:
    """Return the endpoints, for a client, of the leaders that errors name, each once."""
    leaders = {named.node_id for error in errors if (named := current_leader(error)) is not None}
    if not leaders:
        return []
    reached = endpoints(broker.image, client, asked=broker.hosted.node_id)
    return [
        NodeEndpoint(one.node_id, one.host, one.port, one.rack)
        for one in reached.values()
        if one.node_id in leaders
    ]
