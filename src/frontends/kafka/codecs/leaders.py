"""The current leader and its endpoint in responses to a client that asked another broker
(KIP-951)."""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from .primitives import I32, count_of, string_of

_LEADER: Final = Struct(">iix")  # node id, leader epoch, no tagged fields


class CurrentLeader(NamedTuple):
    """The leader of a partition; -1 if unknown."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class NodeEndpoint:
    """The address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


def encode_leader(leader: CurrentLeader) -> bytes:
    """Return the content of a `current_leader` tag."""
    return _LEADER.pack(leader.node_id, leader.epoch)


def encode_endpoints(endpoints: list[NodeEndpoint]) -> bytes:
    """Return the content of a `node_endpoints` tag."""
    parts = [count_of(len(endpoints), flexible=True)]
    for one in endpoints:
        parts += (
            I32.pack(one.node_id),
            string_of(one.host, flexible=True),
            I32.pack(one.port),
            string_of(one.rack, flexible=True),
            b"\x00",
        )
    return b"".join(parts)
