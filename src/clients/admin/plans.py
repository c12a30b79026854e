"""Reassignment plans of the command line and the console, from files and from rules. Pure.

A plan moves as few replicas as possible: a replica stays unless the rule excludes its broker. New
replicas are placed first on racks without a replica of the partition (KIP-36), then on the brokers
with the fewest replicas.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest
from .descriptions import Broker, Topic

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""
Plan: TypeAlias = dict[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""


def current_assignment(topics: Iterable[Topic]) -> Plan:
    """Return the replicas of partitions after the reassignments in progress."""
    return {
        (topic.name, each.partition): tuple(
            node for node in each.replicas if node not in each.removing
        )
        for topic in topics
        for each in topic.partitions
    }


def plan_reassignment(
    current: Mapping[TopicPartition, Sequence[int]],
    chosen: Collection[TopicPartition],
    brokers: Iterable[Broker],
    *,
    allowed: Collection[int],
    replication: int | None = None,
) -> Plan:
    """Return the new replicas of the chosen partitions whose assignment changes.

    Replicas are placed on `allowed` brokers only. Their number stays unless `replication` is given;
    surplus replicas on brokers that are down are removed first. `current` is the assignment of all
    partitions, which determines the load. Raises InvalidReplicationFactor if there are too few
    brokers.
    """
    known = list(brokers)
    racks = {broker.id: broker.rack for broker in known}
    alive = {broker.id for broker in known if not broker.fenced}
    load = Counter(node for replicas in current.values() for node in replicas)
    leads = Counter(replicas[0] for replicas in current.values() if replicas)
    plan: Plan = {}
    for place in sorted(chosen):
        now = tuple(current[place])
        count = replication or len(now)
        if count > len(allowed):
            raise InvalidReplicationFactor(
                f"{count} replicas need as many brokers, but only {len(allowed)} are allowed; give "
                "more brokers or a smaller replication factor",
                topic=place[0],
                partition=place[1],
            )
        stay = [node if node in allowed else None for node in now]
        after = _shrunk(stay, count, alive, racks, load)
        after += [None] * (count - len(after))
        for index, node in enumerate(after):
            if node is None:
                loads = leads if index == 0 else load
                after[index] = chosen_one = _best(after, allowed, racks, loads, load)
                load[chosen_one] += 1
        target = tuple(node for node in after if node is not None)
        load.subtract(node for node in now if node not in target)
        if target != now:
            leads[now[0]] -= 1
            leads[target[0]] += 1
            plan[place] = target
    return plan


def _shrunk(
    replicas: list[int | None],
    count: int,
    alive: Collection[int],
    racks: Mapping[int, str],
    load: Mapping[int, int],
) -> list[int | None]:
    """Return at most `count` replicas. Slots to fill (None) are removed first, then replicas on
    brokers that are down. The preferred leader stays if its broker is alive."""
    while len(replicas) > count:
        if None in replicas:
            del replicas[len(replicas) - 1 - replicas[::-1].index(None)]
            continue
        nodes = [node for node in replicas if node is not None]
        dead = [node for node in nodes if node not in alive]
        replicas.remove(_worst(dead or nodes[1:], nodes, racks, load))
    return replicas


def _best(
    replicas: Sequence[int | None],
    allowed: Collection[int],
    racks: Mapping[int, str],
    loads: Mapping[int, int],
    load: Mapping[int, int],
) -> int:
    """Return the broker for one more replica of a partition."""
    used = Counter(racks.get(node, "") for node in replicas if node is not None)

    def cost(node: int) -> tuple[int, int, int, int]:
        rack = racks.get(node, "")
        return used[rack] if rack else 0, loads.get(node, 0), load.get(node, 0), node

    return min((node for node in allowed if node not in replicas), key=cost)


def _worst(
    candidates: Sequence[int],
    replicas: Sequence[int],
    racks: Mapping[int, str],
    load: Mapping[int, int],
) -> int:
    """Return the replica to remove first."""
    used = Counter(racks.get(node, "") for node in replicas)

    def value(node: int) -> tuple[int, int, int]:
        rack = racks.get(node, "")
        return used[rack] if rack else 0, load.get(node, 0), node

    return max(candidates, key=value)


def parse_nodes(text: str, *, flag: str) -> tuple[int, ...]:
    """Return the node ids of a comma-separated list; raise InvalidReplicaAssignment."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InvalidReplicaAssignment(
            f"{flag} is {text!r}; give a comma-separated list of node ids, such as 1,2,3"
        )
    nodes = tuple(int(part) for part in parts)
    if len(set(nodes)) < len(nodes):
        raise InvalidReplicaAssignment(f"{flag} is {text!r}; give each broker once")
    return nodes


def parse_assignments(text: str, *, flag: str = "--assignments") -> tuple[tuple[int, ...], ...]:
    """Return the replicas of each partition of "1,2,3/2,3,1": slashes separate partitions."""
    return tuple(parse_nodes(part, flag=flag) for part in text.split("/"))


def parse_plan(text: str, *, source: str) -> Plan:
    """Parse a plan in the format of `plan_json` and of Kafka's tool; raise InvalidRequest."""
    try:
        rows = json.loads(text)["partitions"]
        plan: Plan = {}
        for row in rows:
            place = (str(row["topic"]), _whole(row["partition"]))
            if place in plan:
                raise InvalidRequest(f"{source}: {place[0]}-{place[1]} occurs more than once")
            plan[place] = tuple(_whole(node) for node in row["replicas"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{source}: not a reassignment plan ({type(error).__name__}: {error}); give "
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}'
        ) from None
    if not plan:
        raise InvalidRequest(f"{source}: the plan has no partitions")
    return plan


def plan_json(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """Return a plan in its file format."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(plan.items())
        ],
    }


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a number, 0 or more")
    return value
