"""The options of the sink: valid ones, and the refusal of all others by name."""

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import Mode, check_names
from quorumlog.spark.write_options import (
    DeliveryGuarantee,
    OnDifferentBatch,
    WriteOptions,
    parse_write_options,
)

LEAST = {"bootstrap": "localhost:9094"}


def batch(**options: str) -> WriteOptions:
    return parse_write_options(LEAST | options, Mode.BATCH)


def stream(**options: str) -> WriteOptions:
    return parse_write_options(LEAST | options, Mode.STREAM)


def test_defaults_write_exactly_once_without_a_name() -> None:
    options = batch()
    assert options.access == ClusterAccess(bootstrap=("localhost:9094",))
    assert options.topic is None
    assert options.delivery is DeliveryGuarantee.EXACTLY_ONCE
    assert options.on_different_batch is OnDifferentBatch.FAIL
    assert options.stage_timeout_ms == 15 * 60_000
    assert options.partitioner == "murmur2"
    assert options.batch_name() is None
    assert options.producer == {"delivery_timeout_ms": 120_000, "max_block_ms": 240_000}


def test_names_and_values_are_case_insensitive_and_topics_are_not() -> None:
    options = parse_write_options(
        {
            "BOOTSTRAP": "a:1, b:2",
            "Topic": "Delays",
            "DELIVERY": "ExactlyOnce",
            "commitname": "Nightly",
            "COMMITNUMBER": "7",
            "ondifferentBATCH": "WARN",
            "stageTIMEOUT": "2h",
            "Partitioner": "Round_Robin",
            "compression": "ZSTD",
            "bufferSize": "8MiB",
            "maxRequestSize": "16MiB",
            "deliveryTimeout": "5min",
        },
        Mode.BATCH,
    )
    assert options == WriteOptions(
        mode=Mode.BATCH,
        access=ClusterAccess(bootstrap=("a:1", "b:2")),
        topic="Delays",
        delivery=DeliveryGuarantee.EXACTLY_ONCE,
        commit_name="Nightly",
        commit_number=7,
        on_different_batch=OnDifferentBatch.WARN,
        stage_timeout_ms=7_200_000,
        partitioner="round_robin",
        producer={
            "delivery_timeout_ms": 300_000,
            "max_block_ms": 600_000,
            "compression": "zstd",
            "buffer_size": 8 << 20,
            "max_request_size": 16 << 20,
        },
    )
    assert options.batch_name() == "batch/Nightly/Delays"


def test_names_of_batches_differ_by_topic() -> None:
    def name(**options: str) -> str | None:
        return batch(commitNumber="1", **options).batch_name()

    assert name(commitName="a/b", topic="c") == "batch/a/b/c"
    assert name(commitName="a", topic="b") == "batch/a/b"
    assert name(commitName="a/b") == "batch/a/b/"  # the rows contain their topics
    assert name(commitName="12") == "batch/12/", "not the name of a write without one"


def test_stream_is_named_by_its_query_and_uses_the_checkpoint_of_spark() -> None:
    assert stream(checkpointLocation="/c").stream_name("q-1") == "spark/q-1/"
    assert stream(commitName="delays").stream_name("q-1") == "spark/q-1/delays"


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        ({"topik": "a"}, "'topik' is unknown; did you mean 'topic'"),
        ({"zzz": "a"}, "'zzz' is unknown; known are bootstrap, topic,"),
        ({"subscribe": "a"}, "'subscribe' is for reading; remove it"),
        ({"path": "a"}, "'path' means nothing here; name the topic with 'topic'"),
        ({"createTopic": "true"}, "'createTopic' does not exist; create the topic"),
        ({"kafka.bootstrap.servers": "a:1"}, "Kafka connector's; use 'bootstrap'"),
        ({"kafka.acks": "1"}, "'kafka.acks' sets a client of the Kafka connector"),
        ({"topic": " "}, "'topic' is empty"),
        ({"delivery": "once"}, "'delivery' is 'once'; it must be exactlyonce or atleastonce"),
        ({"commitName": "a"}, "'commitName' needs 'commitNumber'"),
        ({"commitNumber": "1"}, "'commitNumber' needs 'commitName'"),
        ({"commitName": "a", "commitNumber": "-1"}, "it must be a whole number of 0 or more"),
        (
            {"delivery": "atleastonce", "commitName": "a", "commitNumber": "1"},
            "'commitName' is for delivery=exactlyonce; remove one of them",
        ),
        ({"delivery": "atleastonce", "stageTimeout": "3min"}, "'stageTimeout' is for delivery"),
        ({"onDifferentBatch": "skip"}, "is 'skip'; it must be fail or warn"),
        ({"stageTimeout": "1s"}, "'stageTimeout' is '1s'; it must be 120000 ms or more"),
        ({"stageTimeout": "25h"}, "is 90000000 ms; it must be 86400000 ms or less"),
        ({"partitioner": "hash"}, "it must be murmur2, sticky, round_robin or crc32"),
        ({"compression": "brotli"}, "it must be none, gzip, snappy, lz4 or zstd"),
        ({"maxRequestSize": "1GiB"}, "it must be 67108864 bytes or less"),
        ({"deliveryTimeout": "5 m"}, "m is ambiguous"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(options: dict[str, str], saying: str) -> None:
    with pytest.raises(InvalidConfig, match=saying):
        batch(**options)


def test_options_of_the_sink_are_refused_by_a_read() -> None:
    with pytest.raises(InvalidConfig, match="'commitName' is for writing; remove it"):
        check_names({"commitname": "a"})
    with pytest.raises(InvalidConfig, match="'topic' is for writing; to read use 'subscribe'"):
        check_names({"topic": "a"})


def test_a_missing_bootstrap_and_a_number_of_a_stream_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="'bootstrap' is missing"):
        parse_write_options({}, Mode.BATCH)
    with pytest.raises(InvalidConfig, match="'commitNumber' is for a batch write"):
        stream(commitName="a", commitNumber="1")
