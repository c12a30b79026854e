"""Consumers in groups: they share partitions, resume at committed offsets, and take over."""

import time
from collections.abc import Callable, Sequence
from itertools import chain

import pytest

from .driving import WITHIN_S, Driver, Found, GroupProtocol, Member, Sent

pytestmark = [pytest.mark.slow, pytest.mark.needs("groups")]

MakeTopic = Callable[..., str]
PROTOCOLS: Sequence[object] = [
    "classic",
    pytest.param("consumer", marks=pytest.mark.needs("groups.consumer")),
]
PARTITIONS = 2


def write(client: Driver, topic: str, *values: str) -> None:
    """Write each value to every partition."""
    with client.writer() as writer:
        writer.send(
            topic,
            [
                Sent(value=value.encode(), partition=partition)
                for value in values
                for partition in range(PARTITIONS)
            ],
        )


def offsets_and_values(found: Sequence[Found]) -> list[tuple[int, bytes | None]]:
    return sorted((one.partition, one.value) for one in found)


def read(member: Member, count: int) -> list[Found]:
    """Return so many records; the first poll waits for the group."""
    found: list[Found] = []
    end = time.monotonic() + WITHIN_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records in {WITHIN_S} s"
        found += member.poll(0.2)
    return found


def until_owned(members: Sequence[Member]) -> list[set[int]]:
    """Poll all members until every partition has an owner; return the owners."""
    end = time.monotonic() + WITHIN_S
    while True:
        owned = [member.owned() for member in members]
        if all(owned) and sorted(chain.from_iterable(owned)) == list(range(PARTITIONS)):
            return owned
        assert time.monotonic() < end, f"after {WITHIN_S} s they own {owned}"
        for member in members:
            member.poll(0.1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_resumes_at_its_committed_offsets(
    client: Driver, topic: MakeTopic, protocol: GroupProtocol
) -> None:
    name = topic(partitions=PARTITIONS)
    write(client, name, "a", "b")
    with client.member(name, name, protocol=protocol) as first:
        assert offsets_and_values(read(first, 4)) == [(0, b"a"), (0, b"b"), (1, b"a"), (1, b"b")]
        first.commit()
    write(client, name, "c")
    with client.member(name, name, protocol=protocol) as second:
        assert offsets_and_values(read(second, 2)) == [(0, b"c"), (1, b"c")]
        assert second.poll(0.3) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_take_over_those_of_a_leaving_member(
    client: Driver, topic: MakeTopic, protocol: GroupProtocol
) -> None:
    name = topic(partitions=PARTITIONS)
    with client.member(name, name, protocol=protocol) as stays:
        assert until_owned([stays]) == [{0, 1}]
        with client.member(name, name, protocol=protocol) as leaves:
            assert sorted(map(len, until_owned([stays, leaves]))) == [1, 1]
        assert until_owned([stays]) == [{0, 1}]
        write(client, name, "a")
        assert offsets_and_values(read(stays, 2)) == [(0, b"a"), (1, b"a")]
