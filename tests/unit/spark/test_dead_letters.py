"""Dead letters of a read: the check of their topic, their client, and their time limit."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType
from tests.kit.waits import AMPLE_MS

import quorumlog
from quorumlog.errors import TimedOut, TransportError, UndecodableValue, UnknownTopicOrPartition
from quorumlog.ids import TopicPartition
from quorumlog.spark import process_client
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import parse_values
from quorumlog.spark.source import QuorumlogSource
from quorumlog.spark.values.bad_values import BadValue, BadValues
from quorumlog.spark.versions import ReadAllAvailable
from quorumlog.testing import Broker

FIELDS = StructType().add("id", "long")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def log(broker: Broker) -> Iterator[quorumlog.Log]:
    with quorumlog.connect(broker.grpc, connect_timeout_ms=AMPLE_MS) as log:
        yield log


def source(broker: Broker, topic: str, **options: str) -> QuorumlogSource:
    given = {
        "bootstrap": broker.grpc, "subscribe": topic, "startingOffsets": "earliest",
        "valueFormat": "json", "valueSchema": FIELDS.json(), "mode": "deadletter",
    }  # fmt: skip
    return QuorumlogSource(given | options)


def letters(bootstrap: str, topic: str, place: TopicPartition, *, timeout_ms: int) -> BadValues:
    """Return the handling of bad values of one task."""
    options = parse_values({"valueFormat": "json", "mode": "deadletter", "deadLetterTopic": topic})
    assert options is not None
    return BadValues(options, ClusterAccess(bootstrap=(bootstrap,)), place, timeout_ms=timeout_ms)


def bad(offset: int) -> BadValue:
    return BadValue(
        offset=offset, reason="no JSON", timestamp_ms=1, key=None, value=b"%d" % offset, headers=()
    )


def test_missing_topic_is_refused_when_the_read_is_planned(
    broker: Broker, log: quorumlog.Log
) -> None:
    log.admin.create_topic("planned")
    made = source(broker, "planned", deadLetterTopic="absent")
    saying = r"absent: .*'deadLetterTopic' does not exist; create it \(quorumlog topics create abs"
    with pytest.raises(UnknownTopicOrPartition, match=saying):
        made.reader(made.schema()).partitions()
    # A query without a record yet, and one that repeats a micro-batch of its checkpoint.
    query: Any = made.streamReader(made.schema())
    start = query.initialOffset()
    with pytest.raises(UnknownTopicOrPartition, match=saying):
        query.latestOffset(start, ReadAllAvailable())
    with pytest.raises(UnknownTopicOrPartition, match=saying):
        query.partitions(start, start)
    log.admin.create_topic("absent")
    assert query.partitions(query.latestOffset(start, ReadAllAvailable()), start) == []
    made.reader(made.schema()).partitions()


def test_tasks_of_a_process_share_one_client(broker: Broker, log: quorumlog.Log) -> None:
    log.admin.create_topic("shared", partitions=1)
    for partition in range(3):
        task = letters(broker.grpc, "shared", TopicPartition("t", partition), timeout_ms=AMPLE_MS)
        task.handle([bad(7), bad(8)])
        task.handle([bad(9)])
    access = ClusterAccess(bootstrap=(broker.grpc,))
    assert [key for key in process_client._clients if key[1] == access] == [(os.getpid(), access)]
    with log.consumer("shared", until_end=True) as consumer:
        found = list(consumer)
    assert [record.value for record in found] == [b"7", b"8", b"9"] * 3
    headers = dict(found[-1].headers)
    assert headers["dead_letter.partition"] == b"2"
    assert UndecodableValue.__name__.encode() in (headers["dead_letter.error"] or b"")


def test_delivery_ends_within_the_time_limit_of_the_read() -> None:
    with Broker() as broker:
        with broker.connect() as log:
            log.admin.create_topic("late")
        task = letters(broker.grpc, "late", TopicPartition("t", 0), timeout_ms=AMPLE_MS)
        task.handle([bad(0)])
        broker.stop()
        # The test's own time limit is below the default of a producer.
        task = letters(broker.grpc, "late", TopicPartition("t", 0), timeout_ms=300)
        with pytest.raises((TimedOut, TransportError)):
            task.handle([bad(1)])
