"""Consumers with assigned partitions: offsets, seeks, timestamps, pauses, bounds, ends of the
log."""

import time
from collections.abc import Callable, Iterable

import pytest

from .cluster import Cluster
from .driving import Driver, Found, Refused, Sent, beginnings, read
from .records import T0, contents, numbered

pytestmark = pytest.mark.slow

MakeTopic = Callable[..., str]
OUT_OF_RANGE = (1, -140)  # the protocol's code; librdkafka's if it must not choose a new position


def offsets(found: Iterable[Found]) -> list[int]:
    return [one.offset for one in found]


@pytest.fixture
def hundred(client: Driver, topic: MakeTopic) -> str:
    """Create a topic of one partition with a hundred records in ten batches."""
    name = topic()
    with client.writer() as writer:
        for since in range(0, 100, 10):
            writer.send(name, numbered(10, since=since))
    return name


@pytest.mark.parametrize("start", [0, 1, 9, 10, 57, 99])
def test_reading_begins_at_the_requested_offset(client: Driver, hundred: str, start: int) -> None:
    with client.reader(hundred, {0: start}) as reader:
        found = read(reader, 100 - start)
    assert offsets(found) == list(range(start, 100))
    assert contents(found) == contents(numbered(100)[start:])


def test_reading_seeks_back_and_forth(client: Driver, hundred: str) -> None:
    with client.reader(hundred, {0: "beginning"}) as reader:
        assert offsets(read(reader, 5))[:5] == [0, 1, 2, 3, 4]
        for place in (95, 3, 50):
            reader.seek(0, place)
            assert offsets(read(reader, 5))[:5] == list(range(place, place + 5))
        reader.seek(0, "beginning")
        assert offsets(read(reader, 100)) == list(range(100))


def test_a_reader_at_the_end_gets_new_records(client: Driver, hundred: str) -> None:
    with client.reader(hundred, {0: "end"}) as reader:
        assert reader.poll(0.3) == []
        with client.writer() as writer:
            writer.send(hundred, numbered(10, since=100))
        found = read(reader, 10)
    assert offsets(found) == list(range(100, 110))


@pytest.mark.needs("wait")
def test_a_record_wakes_the_reader_that_waits_for_it(client: Driver, topic: MakeTopic) -> None:
    """Otherwise it would wait for the maximum time of its fetch."""
    name = topic()
    with (
        client.writer() as writer,
        client.reader(name, {0: "beginning"}, wait_ms=10_000) as reader,
    ):
        assert reader.poll(0.1) == []
        took = []
        for number in range(3):
            began = time.monotonic()
            writer.send(name, numbered(1, since=number))
            assert offsets(read(reader, 1)) == [number]
            took.append(time.monotonic() - began)
        assert sorted(took)[1] < 9.0, "one stall of the machine is permitted"


def test_the_ends_of_a_partition_are_returned(
    client: Driver, hundred: str, topic: MakeTopic
) -> None:
    assert client.offset(hundred, 0, "beginning") == 0
    assert client.offset(hundred, 0, "end") == 100
    assert client.offset(topic(), 0, "end") == 0


@pytest.mark.needs("times", "timestamps")
def test_offsets_are_found_by_time(client: Driver, topic: MakeTopic) -> None:
    name = topic()
    records = [Sent(value=b"%d" % i, timestamp_ms=T0 + 10 * i) for i in range(100)]
    with client.writer() as writer:
        for at in range(0, 100, 7):
            writer.send(name, records[at : at + 7])
    for time_ms, wanted in (
        (T0 - 1, 0),
        (T0, 0),
        (T0 + 1, 1),
        (T0 + 555, 56),
        (T0 + 560, 56),
        (T0 + 990, 99),
        (T0 + 991, -1),
    ):
        assert client.offset(name, 0, time_ms) == wanted, time_ms - T0


@pytest.mark.needs("pause")
def test_a_paused_partition_returns_no_records_while_the_other_one_does(
    client: Driver, topic: MakeTopic
) -> None:
    name = topic(partitions=2)
    with (
        client.writer() as writer,
        client.reader(name, {0: "beginning", 1: "beginning"}) as reader,
    ):
        writer.send(name, [*numbered(10, partition=0), *numbered(10, partition=1)])
        read(reader, 20)
        reader.pause(0)
        writer.send(name, [*numbered(10, partition=0), *numbered(10, partition=1)])
        found = read(reader, 10)
        found += reader.poll(0.5)
        assert [(one.partition, one.offset) for one in found] == [(1, i) for i in range(10, 20)]
        reader.resume(0)
        found = read(reader, 10)
    assert [(one.partition, one.offset) for one in found] == [(0, i) for i in range(10, 20)]


@pytest.mark.needs("fetch_bytes")
def test_a_fetch_of_few_bytes_still_returns_a_batch(client: Driver, topic: MakeTopic) -> None:
    name = topic()
    with client.writer() as writer:
        for number in range(5):
            writer.send(name, numbered(1, size=50_000, since=number))
    with client.reader(name, {0: "beginning"}, fetch_bytes=1000) as reader:
        found = read(reader, 5)
    assert contents(found) == contents(numbered(5, size=50_000))


@pytest.mark.needs("errors")
def test_a_reader_beyond_the_end_gets_an_error(client: Driver, hundred: str) -> None:
    with client.reader(hundred, {0: 101}) as reader, pytest.raises(Refused) as refused:
        read(reader, 1, within_s=20)
    assert refused.value.code in OUT_OF_RANGE


@pytest.mark.needs("errors", "admin.delete_records")
def test_a_reader_below_the_start_gets_an_error_and_may_continue_at_the_start(
    client: Driver, hundred: str
) -> None:
    with client.admin() as admin:
        admin.delete_records(hundred, {0: 42})
    assert client.offset(hundred, 0, "beginning") == 42
    with client.reader(hundred, {0: 41}) as reader:
        with pytest.raises(Refused) as refused:
            read(reader, 1, within_s=20)
        assert refused.value.code in OUT_OF_RANGE
    with client.reader(hundred, {0: "beginning"}) as reader:
        assert offsets(read(reader, 58)) == list(range(42, 100))


def test_partitions_of_every_broker_are_read_at_once(
    client: Driver, cluster: Cluster, topic: MakeTopic
) -> None:
    name = topic(partitions=6)
    leaders = {cluster.leader(name, partition) for partition in range(6)}
    assert leaders == set(cluster.addresses)
    with client.writer(idempotent=True) as writer:
        writer.send(name, [one for at in range(6) for one in numbered(50, partition=at)])
    with client.reader(name, beginnings(6)) as reader:
        found = read(reader, 300)
    for partition in range(6):
        mine = [one for one in found if one.partition == partition]
        assert offsets(mine) == list(range(50))
        assert contents(mine) == contents(numbered(50))


def test_a_reader_gets_records_in_order_while_others_write(
    client: Driver, topic: MakeTopic
) -> None:
    name = topic()
    with client.reader(name, {0: "beginning"}) as reader, client.writer() as writer:
        found: list[Found] = []
        for since in range(0, 1000, 100):
            writer.send(name, numbered(100, since=since))
            found += read(reader, 1)
        found += read(reader, 1000 - len(found)) if len(found) < 1000 else []
    assert contents(found) == contents(numbered(1000))
    assert offsets(found) == list(range(1000))
