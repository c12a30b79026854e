"""Transactions are atomic over partitions and groups, at both isolation levels."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .driving import WITHIN_S, Driver, Found, Member, Refused, Sent, beginnings, read

pytestmark = [pytest.mark.slow, pytest.mark.needs("transactions")]

MakeTopic = Callable[..., str]

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"

FENCED = (90, 47, -144)
"""PRODUCER_FENCED, INVALID_PRODUCER_EPOCH (KIP-588), and librdkafka's _FENCED."""


def sent(*values: str, partition: int = 0) -> list[Sent]:
    return [Sent(value=value.encode(), partition=partition) for value in values]


def values(found: list[Found]) -> list[str]:
    return [(one.value or b"").decode() for one in found]


def committed(client: Driver, topic: str, count: int, *, partition: int = 0) -> list[str]:
    """Return the values of `count` records at isolation level read_committed, and all records
    within half a second after them."""
    with client.reader(topic, {partition: "beginning"}, is_committed=True) as reader:
        found = read(reader, count) if count else []
        return values(found + reader.poll(0.5))


def polled(member: Member, count: int) -> list[Found]:
    """Return so many records of a group; the first poll waits for the group."""
    found: list[Found] = []
    end = time.monotonic() + WITHIN_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records in {WITHIN_S} s"
        found += member.poll(0.2)
    return found


def test_records_of_a_transaction_are_visible_once_it_is_committed(
    client: Driver, topic: MakeTopic
) -> None:
    name = topic()
    with client.transactional(name) as writer:
        writer.begin()
        writer.send(name, sent("a", "b"))
        assert committed(client, name, 0) == []
        with client.reader(name, {0: "beginning"}) as reader:
            assert values(read(reader, 2)) == ["a", "b"]
        writer.commit()
        assert committed(client, name, 2) == ["a", "b"]


def test_records_of_an_aborted_transaction_stay_invisible(client: Driver, topic: MakeTopic) -> None:
    name = topic()
    with client.transactional(name) as writer:
        for number in range(3):
            writer.begin()
            writer.send(name, sent(f"aborted {number}"))
            writer.abort()
            writer.begin()
            writer.send(name, sent(f"committed {number}"))
            writer.commit()
    assert committed(client, name, 3) == [f"committed {number}" for number in range(3)]
    with client.reader(name, {0: "beginning"}) as reader:
        assert len(read(reader, 6)) == 6


def test_interleaved_transactions_of_two_producers_are_distinguished(
    client: Driver, topic: MakeTopic
) -> None:
    """The fetched range has batches of both; the list of aborted transactions decides."""
    name = topic()
    with client.transactional(f"{name}.a") as first, client.transactional(f"{name}.b") as second:
        first.begin()
        second.begin()
        for number in range(5):
            first.send(name, sent(f"a{number}"))
            second.send(name, sent(f"b{number}"))
        second.commit()
        assert committed(client, name, 0) == []  # the first one determines the last stable offset
        first.abort()
        with client.writer() as plain:
            plain.send(name, sent("plain"))
        assert committed(client, name, 6) == [f"b{number}" for number in range(5)] + ["plain"]


def test_a_transaction_spans_partitions(client: Driver, topic: MakeTopic) -> None:
    name = topic(partitions=6)
    with client.transactional(name) as writer:
        for number in range(4):
            writer.begin()
            for partition in range(6):
                writer.send(name, sent(str(number), partition=partition))
            if number % 2:
                writer.abort()
            else:
                writer.commit()
    with client.reader(name, beginnings(6), is_committed=True) as reader:
        found = read(reader, 12)
        found += reader.poll(0.5)
    assert sorted((one.partition, one.value) for one in found) == [
        (partition, value) for partition in range(6) for value in (b"0", b"2")
    ]


def test_a_new_producer_of_an_id_fences_the_earlier_one(client: Driver, topic: MakeTopic) -> None:
    name = topic()
    with client.transactional(name) as zombie:
        zombie.begin()
        zombie.send(name, sent("zombie"))
        with client.transactional(name) as writer:
            writer.begin()
            writer.send(name, sent("new"))
            with pytest.raises(Refused) as refused:
                zombie.commit()
            assert refused.value.code in FENCED
            writer.commit()
    assert committed(client, name, 1) == ["new"]


def test_an_open_transaction_is_aborted_after_its_timeout(client: Driver, topic: MakeTopic) -> None:
    name = topic()
    with client.transactional(name, timeout_ms=1_000) as writer:
        writer.begin()
        writer.send(name, sent("late"))
        with client.writer() as plain:
            plain.send(name, sent("plain"))
        assert committed(client, name, 1) == ["plain"]  # waits for the abort
        with pytest.raises(Refused):
            writer.commit()


def test_offsets_of_a_group_are_committed_with_the_transaction(
    client: Driver, topic: MakeTopic
) -> None:
    """Read, process, write: an aborted round is read again, a committed one is not."""
    source, target = topic(), topic()
    with client.writer() as writer:
        writer.send(source, sent("1", "2", "3"))
    with client.transactional(source) as writer:
        for is_last in (False, True):
            with client.member(source, source) as member:
                found = polled(member, 3)
                writer.begin()
                writer.send(target, sent(*values(found)))
                writer.send_offsets(member, source, {0: 3})
                if is_last:
                    writer.commit()
                else:
                    writer.abort()
    assert committed(client, target, 3) == ["1", "2", "3"]
    with client.writer() as plain:
        plain.send(source, sent("4"))
    with client.member(source, source) as member:
        assert values(polled(member, 1)) == ["4"]


def test_many_transactions_of_one_producer_are_each_visible_once(
    client: Driver, topic: MakeTopic
) -> None:
    name = topic()
    with client.transactional(name) as writer:
        for number in range(50):
            writer.begin()
            writer.send(name, sent(str(number)))
            writer.commit()
    assert committed(client, name, 50) == [str(number) for number in range(50)]


def test_the_page_lists_the_client_with_its_version_and_these_tests(client: Driver) -> None:
    count = sum(name.startswith("test_") for name in globals()) - 1  # without this test
    section = PAGE.read_text().partition("### Clients with transactions")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\S+) \| (.+?) \| (?:older|2) \| (.+?) \|$", section, re.MULTILINE)
    assert (client.name, client.version, f"{count} of {count}") in rows
