"""Produce, Fetch and ListOffsets in every version: records are stored and returned byte for
byte."""

from kio.schema.errors import ErrorCode
from tests.kit.batches import batch_of
from tests.kit.kafka_node import serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.records import Codec, decode_all, iterate_batches
from quorumlog.records.batch import renumber
from quorumlog.runtime import Runtime

from .produce_fetch import DESCRIBE_PRODUCERS, create, epoch_ends, fetch, listed, produce

CODECS = list(Codec)


def test_records_round_trip_in_every_version(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await create(kafka, "t")
            sent: list[bytes] = []
            for version in range(3, 14):
                records = batch_of(b"a%d" % version, b"b" * version, codec=CODECS[version % 5])
                offset = await produce(kafka.client, records, version=version, topic_id=topic_id)
                assert offset == 2 * len(sent)
                sent.append(records)
            for version in range(4, 19):
                got = await fetch(kafka.client, 0, version=version, topic_id=topic_id)
                stored = [got[at : at + header.size] for at, header in iterate_batches(got)]
                # A producer's CRC does not cover base offset and leader epoch.
                assert [each[16:] for each in stored] == [each[16:] for each in sent]
                assert [record.offset for record in decode_all(got)] == list(range(22))
            for version in range(1, 12):
                results = await listed(kafka.client, (0, -1), version=version)
                assert (results[0].error_code, results[0].offset) == (0, 22)

    run(main)


def test_end_of_an_epoch_is_returned_in_every_version(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create(kafka, "t")
            (before,) = await epoch_ends(kafka.client, (0, 0))
            assert (before.error_code, before.leader_epoch, before.end_offset) == (0, 0, 0)
            await produce(kafka.client, batch_of(b"a", b"b"))
            for version in range(2, 5):
                (end,) = await epoch_ends(kafka.client, (0, 0), version=version)
                assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 2)
            (unknown,) = await epoch_ends(kafka.client, (0, 7))
            assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)
            (fenced,) = await epoch_ends(kafka.client, (0, 0), current=7)
            assert fenced.error_code == ErrorCode.unknown_leader_epoch
            (nowhere,) = await epoch_ends(kafka.client, (9, 0))
            assert nowhere.error_code == ErrorCode.unknown_topic_or_partition

    run(main)


def test_producers_of_a_partition_are_described(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create(kafka, "t")
            records = renumber(
                batch_of(b"a", b"b"), producer_id=77, producer_epoch=3, base_sequence=0
            )
            await produce(kafka.client, records)
            answer = await kafka.client.ask(
                DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": (0, 9)}]
            )
            there, nowhere = answer.topics[0].partitions
            (producer,) = there.active_producers
            assert (producer.producer_id, producer.producer_epoch) == (77, 3)
            assert (producer.last_sequence, producer.last_timestamp) == (1, 1001)
            assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
            assert nowhere.error_code == ErrorCode.unknown_topic_or_partition

    simulation.run(main)
