"""Partitions and groups as a broker describes them, for tests of findings."""

from typing import Any

from quorumlog.clients.admin.descriptions import Partition
from quorumlog.clients.admin.groups import Group, GroupOffset


def partition(**fields: Any) -> Partition:
    """Return a partition of three replicas, two in sync, overridden by `fields`."""
    defaults: dict[str, Any] = {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": (1, 2, 3),
        "isr": (1, 2),
        "min_isr": 2,
        "elr": (),
        "last_known_elr": (),
        "adding": (),
        "removing": (),
        "recovering": False,
    }
    return Partition(**(defaults | fields))


def lone_partition(number: int = 0) -> Partition:
    """Return a partition with one replica."""
    return partition(partition=number, replicas=(1,), isr=(1,), min_isr=1)


def group(*offsets: GroupOffset, **fields: Any) -> Group:
    """Return a classic group without members, overridden by `fields`."""
    defaults: dict[str, Any] = {
        "name": "g",
        "type": "classic",
        "state": "Empty",
        "coordinator": 1,
        "epoch": 0,
        "target_epoch": -1,
        "assignor": "",
        "members": (),
        "offsets": offsets,
    }
    return Group(**(defaults | fields))
