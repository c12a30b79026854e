"""Addresses and settings of a test's node, and the settings that a test may choose."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InvalidRequest
from .ports import Ports

OWN: Final = ("data.dir", "node.id", "node.roles", "node.rack", "cluster.id")
OWN_BEGINNINGS: Final = ("listeners.", "advertised.", "controller.voters", "controller.bootstrap")
BOTH: Final = ("controller", "broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoints:
    """The listen addresses of a node, each "host:port"."""

    kafka: str  # Kafka clients
    grpc: str  # quorumlog clients
    controller: str  # the other nodes
    raft: str  # streams of quorum members
    replica: str  # streams of followers
    http: str  # metrics and health

    @staticmethod
    def take(ports: Ports) -> "NodeEndpoints":
        """Return addresses that no other process uses."""
        return NodeEndpoints(
            kafka=ports.take(),
            grpc=ports.take(),
            controller=ports.take(),
            raft=ports.take(),
            replica=ports.take(),
            http=ports.take(),
        )

    def dialled(self, roles: Sequence[str]) -> tuple[str, ...]:
        """Return the addresses at which other nodes reach a node with these roles."""
        quorum = (self.controller, self.raft)
        return (*quorum, self.replica) if "broker" in roles else quorum


def check_settings(settings: Mapping[str, object]) -> None:
    """Reject settings that each node is assigned; raises InvalidRequest."""
    for name in settings:
        if name in OWN or name.startswith(OWN_BEGINNINGS):
            raise InvalidRequest(
                f"{name} cannot be set in a test: each node is assigned its folder, ids and ports"
            )


def node_rows(
    number: int, addresses: NodeEndpoints, *, roles: Sequence[str], data_dir: Path
) -> dict[str, object]:
    """Return the settings of every node, by name. New groups do not wait for more members, so that
    a test with one subscribing consumer takes no longer than one that assigns partitions."""
    rows: dict[str, object] = {
        "node.id": number,
        "node.roles": list(roles),
        "data.dir": str(data_dir),
        "listeners.controller": addresses.controller,
        "listeners.raft": addresses.raft,
        "listeners.http": addresses.http,
        "group.initial.rebalance.delay.ms": 0,
    }
    if "broker" in roles:
        rows["listeners.kafka"] = [addresses.kafka]
        rows["listeners.grpc"] = addresses.grpc
        rows["listeners.replica"] = addresses.replica
    return rows


def encode_toml(rows: Mapping[str, object]) -> str:
    """Return the text of a node's configuration file."""
    return "".join(f"{json.dumps(name)} = {_value(value)}\n" for name, value in rows.items())


def new_id() -> str:
    """Return a new id of a cluster or a disk."""
    drawn = "-"
    while drawn.startswith("-"):  # a command line would take it for a flag
        drawn = base64.urlsafe_b64encode(os.urandom(16)).decode("ascii").rstrip("=")
    return drawn


def _value(value: object) -> str:
    """Return a value in TOML; choices of true and false are strings."""
    return json.dumps(str(value).lower() if isinstance(value, bool) else value)
