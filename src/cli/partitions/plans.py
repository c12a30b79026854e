"""Where replicas shall be: plans for `quorumlog partitions reassign`, as files and as rules; pure.

A plan moves as little as it can: a replica stays where it is unless the rule says that it may not.
New replicas go to racks that have none of the partition first (KIP-36), then to the brokers that
hold the fewest replicas.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest

if TYPE_CHECKING:
    from ...clients import Broker, Topic

Place: TypeAlias = tuple[str, int]
"""(topic, partition)."""
Plan: TypeAlias = dict[Place, tuple[int, ...]]
"""The brokers of each partition, the preferred leader first."""


def present_of(topics: Iterable["Topic"]) -> Plan:
    """Return where partitions are, or will be once the moves under way are over."""
    return {
        (topic.name, each.partition): tuple(
            node for node in each.replicas if node not in each.removing
        )
        for topic in topics
        for each in topic.partitions
    }


def planned(
    present: Mapping[Place, Sequence[int]],
    chosen: Collection[Place],
    brokers: Iterable["Broker"],
    *,
    allowed: Collection[int],
    replication: int | None = None,
) -> Plan:
    """Return new replicas for the chosen partitions that are not placed so yet.

    Replicas are on `allowed` brokers only, and as many as there are now unless `replication` says
    otherwise; of too many, those on brokers that are down go first. `present` is all that the
    brokers hold, by which the load is judged. Raises InvalidReplicationFactor where there are too
    few brokers.
    """
    known = list(brokers)
    racks = {broker.id: broker.rack for broker in known}
    alive = {broker.id for broker in known if not broker.fenced}
    load = Counter(node for replicas in present.values() for node in replicas)
    leads = Counter(replicas[0] for replicas in present.values() if replicas)
    plan: Plan = {}
    for place in sorted(chosen):
        now = tuple(present[place])
        count = replication or len(now)
        if count > len(allowed):
            raise InvalidReplicationFactor(
                f"{count} replicas need as many brokers, and {len(allowed)} may be used: give more "
                "brokers or fewer replicas",
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
    """Return `count` replicas at most: those that must go anyhow (None) are given up first, then
    those on brokers that are down, the preferred leader never while its broker lives."""
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
    """Return the broker that takes one more replica of a partition."""
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
    """Return the replica that is given up first."""
    used = Counter(racks.get(node, "") for node in replicas)

    def value(node: int) -> tuple[int, int, int]:
        rack = racks.get(node, "")
        return used[rack] if rack else 0, load.get(node, 0), node

    return max(candidates, key=value)


def parse_nodes(text: str, *, flag: str) -> tuple[int, ...]:
    """Return node ids separated by commas; raises InvalidReplicaAssignment."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InvalidReplicaAssignment(
            f"{flag} is {text!r}; give node ids separated by commas, such as 1,2,3"
        )
    nodes = tuple(int(part) for part in parts)
    if len(set(nodes)) < len(nodes):
        raise InvalidReplicaAssignment(f"{flag} is {text!r}; name each broker once")
    return nodes


def parse_assignments(text: str, *, flag: str = "--assignments") -> tuple[tuple[int, ...], ...]:
    """Return the brokers of each partition from "1,2,3/2,3,1": a partition between slashes."""
    return tuple(parse_nodes(part, flag=flag) for part in text.split("/"))


def parse_plan(text: str, *, source: str) -> Plan:
    """Read a plan as `plan_json` writes it, and as Kafka's tool does; raises InvalidRequest."""
    try:
        rows = json.loads(text)["partitions"]
        plan: Plan = {}
        for row in rows:
            place = (str(row["topic"]), _whole(row["partition"]))
            if place in plan:
                raise InvalidRequest(f"{source}: {place[0]}-{place[1]} is there twice")
            plan[place] = tuple(_whole(node) for node in row["replicas"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{source} is no plan ({type(error).__name__}: {error}): give "
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}'
        ) from None
    if not plan:
        raise InvalidRequest(f"{source} names no partition")
    return plan


def plan_json(plan: Mapping[Place, Sequence[int]]) -> dict[str, Any]:
    """Return a plan as it is kept in a file."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(plan.items())
        ],
    }


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no number of 0 or more")
    return value
