"""Produce, Fetch and ListOffsets: records in, the same bytes out, in every version."""

from quorumlog.records import Codec, decode_all, iterate_batches
from quorumlog.runtime import Runtime

from ..served_node import Run
from .hot_client import batch, create, fetch, listed, produce
from .kafka_node import serving_kafka

CODECS = list(Codec)


def test_records_come_back_as_they_went_in_by_every_version(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await create(kafka, "t")
            sent = []
            for version in range(3, 14):
                records = batch(b"a%d" % version, b"b" * version, codec=CODECS[version % 5])
                offset = await produce(kafka.client, records, version=version, topic_id=topic_id)
                assert offset == 2 * len(sent)
                sent.append(records)
            for version in range(4, 19):
                got = await fetch(kafka.client, 0, version=version, topic_id=topic_id)
                stored = [got[at : at + header.size] for at, header in iterate_batches(got)]
                # Base offset and leader epoch lie outside of what a producer's CRC covers.
                assert [each[16:] for each in stored] == [each[16:] for each in sent]
                assert [record.offset for record in decode_all(got)] == list(range(22))
            for version in range(1, 12):
                results = await listed(kafka.client, (0, -1), version=version)
                assert (results[0].error_code, results[0].offset) == (0, 22)

    run(main)
