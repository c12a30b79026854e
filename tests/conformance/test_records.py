"""Each client reads the records that it wrote: codecs, nulls, headers, times, sizes, acks."""

import time
from collections.abc import Callable

import pytest

from quorumlog.records import Codec as StoredCodec
from quorumlog.records import partition_for_key

from .cluster import Cluster, ThreeNodes
from .driving import CODECS, Acks, Codec, Driver, Refused, Sent, beginnings, read
from .records import (
    LARGE_BYTES,
    T0,
    assert_dense,
    assert_same,
    contents,
    numbered,
    sayable,
    unusual,
)

pytestmark = pytest.mark.slow

MakeTopic = Callable[..., str]
MESSAGE_TOO_LARGE = 10


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_unchanged_and_stored_with_their_codec(
    client: Driver, cluster: Cluster, topic: MakeTopic, codec: Codec
) -> None:
    if codec in client.cannot:
        pytest.skip(f"excluded: {client.name}, {codec}: {client.cannot[codec]}")
    name = topic()
    records = [*unusual(client), *numbered(300, size=500), *unusual(client)]
    with client.writer(codec=codec) as writer:
        delivered = writer.send(name, records)
    if "offsets" not in client.cannot:
        assert [each.offset for each in delivered] == list(range(len(records)))
    with client.reader(name, {0: "beginning"}) as reader:
        found = read(reader, len(records))
    assert_same(found, records)
    assert_dense(found)
    assert StoredCodec[codec.upper()] in {header.codec for header in cluster.batches(name, 0)}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_stored_with_each_acks_setting(
    client: Driver, topic: MakeTopic, acks: Acks
) -> None:
    name = topic()
    records = numbered(100)
    with client.writer(acks=acks) as writer:
        delivered = writer.send(name, records)
    if "offsets" not in client.cannot and acks != "0":
        assert [each.offset for each in delivered] == list(range(100))
    with client.reader(name, {0: "beginning"}) as reader:
        found = read(reader, 100)
    assert contents(found) == contents(records)


@pytest.mark.needs("idempotent")
def test_an_idempotent_producer_numbers_its_batches(
    client: Driver, cluster: Cluster, topic: MakeTopic
) -> None:
    name = topic()
    with client.writer(idempotent=True) as writer:
        for since in range(0, 500, 50):  # more batches than a broker keeps of a producer
            writer.send(name, numbered(50, since=since))
    with client.reader(name, {0: "beginning"}) as reader:
        found = read(reader, 500)
    assert contents(found) == contents(numbered(500))
    assert_dense(found)
    headers = cluster.batches(name, 0)
    assert all(header.producer_id >= 0 for header in headers)
    if client.name != "kcat":  # kcat has a new producer for each command
        assert len({header.producer_id for header in headers}) == 1
        first = [header.base_sequence for header in headers]
        assert first == [header.base_offset for header in headers]


@pytest.mark.needs("large")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_of_nearly_a_megabyte_is_read_unchanged(
    client: Driver, topic: MakeTopic, codec: Codec
) -> None:
    if codec in client.cannot:
        pytest.skip(f"excluded: {client.name}, {codec}: {client.cannot[codec]}")
    name = topic()
    records = [
        Sent(key=b"%d" % i, value=(b"%d-" % i * LARGE_BYTES)[: LARGE_BYTES - i]) for i in range(3)
    ]
    with client.writer(codec=codec) as writer:
        for record in records:
            writer.send(name, [record])
    with client.reader(name, {0: "beginning"}) as reader:
        found = read(reader, 3)
    assert contents(found) == contents(records)


@pytest.mark.needs("errors")
def test_a_record_that_is_too_large_is_rejected_and_the_next_one_accepted(
    client: Driver, topic: MakeTopic
) -> None:
    name = topic(max_message_bytes="100000")
    with client.writer() as writer:
        with pytest.raises(Refused) as refused:
            writer.send(name, [Sent(value=b"x" * 200_000)])
        assert refused.value.code == MESSAGE_TOO_LARGE
        writer.send(name, [Sent(value=b"small")])
    with client.reader(name, {0: "beginning"}) as reader:
        assert [one.value for one in read(reader, 1)] == [b"small"]


def test_the_broker_stamps_records_of_a_topic_with_log_append_time(
    client: Driver, topic: MakeTopic
) -> None:
    name = topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 1
    with client.writer(codec="gzip") as writer:
        writer.send(name, [sayable(client, Sent(value=b"v", timestamp_ms=T0))] * 3)
    after_ms = int(time.time() * 1000) + 1
    with client.reader(name, {0: "beginning"}) as reader:
        found = read(reader, 3)
    assert all(before_ms <= one.timestamp_ms <= after_ms for one in found)


def test_keys_go_to_the_partitions_of_the_murmur2_hash(client: Driver, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    keys = [b"key-%d" % i for i in range(40)] + ["\u00fc\u2192".encode()]
    with client.writer() as writer:
        writer.send(name, [Sent(key=key, value=b"v", partition=None) for key in keys])
    with client.reader(name, beginnings(3)) as reader:
        found = read(reader, len(keys))
    assert {one.key: one.partition for one in found} == {
        key: partition_for_key(key, 3) for key in keys
    }


def test_many_records_keep_their_order_in_each_partition(client: Driver, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    each = 400 if client.name == "kcat" else 2000
    records = [
        record
        for some in range(0, each, 100)
        for partition in range(3)
        for record in numbered(100, partition=partition, since=some)
    ]
    with client.writer(codec="gzip") as writer:
        writer.send(name, records)
    with client.reader(name, beginnings(3)) as reader:
        found = read(reader, 3 * each)
    for partition in range(3):
        ours = [one for one in found if one.partition == partition]
        assert contents(ours) == contents(numbered(each))
        assert_dense(ours)


def test_a_producer_creates_its_topic(client: Driver, cluster: Cluster) -> None:
    """Uses the default of `auto.create.topics.enable`."""
    if not isinstance(cluster, ThreeNodes):
        pytest.skip("excluded: the setting is off")
    name = f"made.by.writing.{client.name}"
    with client.writer() as writer:
        writer.send(name, numbered(10))
    with client.reader(name, {0: "beginning"}) as reader:
        assert contents(read(reader, 10)) == contents(numbered(10))
    with cluster.log() as log:
        log.admin.delete_topic(name)  # its only replica may be on a broker that is down later
