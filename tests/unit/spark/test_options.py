"""The options of the data source: valid ones, and the refusal of all others by name."""

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition
from quorumlog.spark.options import (
    HELD_BYTES,
    Assigned,
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Isolation,
    Limits,
    Mode,
    NoMatch,
    ReadOptions,
    RetentionHold,
    Subscribed,
    SubscribedPattern,
    check_names,
    parse_options,
)

LEAST = {"bootstrap": "localhost:9094", "subscribe": "flights"}


def batch(**options: str) -> ReadOptions:
    return parse_options(LEAST | options, Mode.BATCH)


def stream(**options: str) -> ReadOptions:
    return parse_options(LEAST | {"startingOffsets": "earliest"} | options, Mode.STREAM)


def test_defaults_of_a_batch_read_everything_committed_and_decided() -> None:
    options = batch()
    assert options.access.bootstrap == ("localhost:9094",)
    assert options.selection == Subscribed(("flights",))
    assert options.start == AtEarliest()
    assert options.end == AtLatest()
    assert options.fail_on_data_loss is True
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.include_headers is None
    assert options.min_partitions is None


def test_names_and_keywords_are_case_insensitive_and_topics_are_not() -> None:
    options = parse_options(
        {
            "BOOTSTRAP": "a:1, b:2",
            "subSCRIBE": " Flights ,delays",
            "STARTINGoffsets": "earLiEst",
            "endingOFFSETS": "laTest",
            "FailOnDataLoss": "FALSE",
            "IsolationLevel": "Read_Uncommitted",
        },
        Mode.BATCH,
    )
    assert options.access.bootstrap == ("a:1", "b:2")
    assert options.selection == Subscribed(("Flights", "delays"))
    assert options.fail_on_data_loss is False
    assert options.isolation is Isolation.READ_UNCOMMITTED


def test_assign_takes_a_json_list_per_topic() -> None:
    options = parse_options({"bootstrap": "a:1", "assign": '{"t": [1, 0], "s": [3]}'}, Mode.BATCH)
    assert options.selection == Assigned(
        (TopicPartition("s", 3), TopicPartition("t", 0), TopicPartition("t", 1))
    )


def test_pattern_is_taken() -> None:
    options = parse_options({"bootstrap": "a:1", "subscribePattern": "fl.*"}, Mode.BATCH)
    assert options.selection == SubscribedPattern("fl.*")


def test_explicit_offsets_may_be_earliest_at_the_start_and_latest_at_the_end() -> None:
    options = batch(
        startingOffsets='{"flights": {"0": 23, "1": -2}}',
        endingOffsets='{"flights": {"0": 50, "1": -1}}',
    )
    zero, one = TopicPartition("flights", 0), TopicPartition("flights", 1)
    assert options.start == AtOffsets({zero: 23, one: -2})
    assert options.end == AtOffsets({zero: 50, one: -1})


def test_single_timestamp_overrides_timestamps_which_override_offsets() -> None:
    each = '{"flights": {"0": 7}}'
    offsets = '{"flights": {"0": 9}}'
    place = TopicPartition("flights", 0)
    options = batch(startingOffsetsByTimestamp=each, startingOffsets=offsets)
    assert options.start == AtTimestamps({place: 7})
    options = batch(startingTimestamp="5", startingOffsetsByTimestamp=each)
    assert options.start == AtTimestamp(5)
    options = batch(endingOffsetsByTimestamp=each, endingOffsets=offsets)
    assert options.end == AtTimestamps({place: 7})
    options = batch(endingTimestamp="8", endingOffsetsByTimestamp=each)
    assert options.end == AtTimestamp(8)


def test_default_strategy_for_timestamps_without_a_record_is_error() -> None:
    assert batch(startingTimestamp="5").start_no_match is NoMatch.ERROR
    options = batch(startingTimestamp="5", startingOffsetsByTimestampStrategy="LATEST")
    assert options.start_no_match is NoMatch.LATEST


def test_a_stream_takes_earliest_offsets_and_times() -> None:
    assert stream().start == AtEarliest()
    explicit = stream(startingOffsets='{"flights": {"0": 4}}')
    assert explicit.start == AtOffsets({TopicPartition("flights", 0): 4})
    assert stream(startingTimestamp="9").start == AtTimestamp(9)
    assert stream(maxOffsetsPerTrigger="100").limits == Limits(offsets_max=100)


def test_a_stream_with_a_group_may_start_at_latest_and_does_by_default() -> None:
    grouped = LEAST | {"groupId": "g"}
    assert parse_options(grouped, Mode.STREAM).start == AtLatest()
    assert stream(groupId="g", startingOffsets="LATEST").starts_at_end
    assert stream(groupId="g", startingOffsets='{"flights": {"0": -1, "1": 3}}').starts_at_end
    assert not stream(groupId="g", startingOffsets='{"flights": {"0": 0, "1": 3}}').starts_at_end
    timed = {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}
    assert stream(groupId="g", **timed).starts_at_end
    assert not stream(groupId="g").starts_at_end


def test_limits_take_units() -> None:
    taken = stream(minOffsetsPerTrigger="5", maxTriggerDelay="2min", maxBytesPerTrigger="64MiB")
    assert taken.limits == Limits(offsets_min=5, delay_ms_max=120_000, bytes_max=64 << 20)
    assert stream(minOffsetsPerTrigger="5").limits.delay_ms_max == 15 * 60 * 1000


def test_retention_hold_is_always_bounded_in_bytes() -> None:
    assert stream(groupId="g", retentionHold="true").hold == RetentionHold(HELD_BYTES)
    small = stream(groupId="g", retentionHold="true", retentionHoldBytes="1GiB")
    assert small.hold == RetentionHold(1 << 30)
    assert stream(groupId="g", retentionHold="false").hold is None


@pytest.mark.parametrize(
    ("options", "naming"),
    [
        (
            {"startingOffset": "earliest"},
            "'startingOffset' is unknown; did you mean 'startingOffsets'",
        ),
        ({"colour": "red"}, "'colour' is unknown; known are bootstrap"),
        ({"kafka.bootstrap.servers": "a:1"}, "'kafka.bootstrap.servers'.* use 'bootstrap'"),
        ({"kafka.ssl.protocol": "TLS"}, "'kafka.ssl.protocol'.*remove it"),
        ({"path": "/x"}, "'path'.*'subscribe'"),
        ({"topic": "x"}, "'topic' is for writing"),
        ({"groupId": "g"}, "'groupId' is not for a batch read"),
        ({"kafka.group.id": "g"}, "use 'groupId'"),
        ({"maxBytesPerTrigger": "1"}, "'maxBytesPerTrigger' is not for a batch read"),
        ({"bootstrap": ""}, "'bootstrap' is empty"),
        ({"bootstrap": "localhost"}, "'bootstrap' has 'localhost'; an address is host:port"),
        ({"bootstrap": "localhost:99999"}, "an address is host:port"),
        ({"bootstrap": ","}, "'bootstrap' names no address"),
        ({"subscribe": " "}, "'subscribe' is empty"),
        ({"subscribe": ","}, "'subscribe' names no topic"),
        ({"assign": '{"t": [0]}'}, "exactly one .* not assign and subscribe together"),
        ({"startingOffsets": "latest"}, "'startingOffsets' is latest .*use 'earliest'"),
        ({"startingOffsets": '{"flights": {"0": -1}}'}, "'startingOffsets' is latest"),
        ({"startingOffsets": "soon"}, "'startingOffsets' is not JSON"),
        ({"startingOffsets": "{}"}, "'startingOffsets' must be a JSON object like"),
        ({"startingOffsets": '{"flights": {}}'}, "no partitions for topic 'flights'"),
        ({"startingOffsets": '{"flights": {"x": 1}}'}, "'x' instead of a partition index"),
        ({"startingOffsets": '{"flights": {"0": -3}}'}, "has -3 for flights-0"),
        ({"startingOffsets": '{"flights": {"0": true}}'}, "has True for flights-0"),
        ({"startingOffsets": '{"flights": {"0": 1.5}}'}, "has 1.5 for flights-0"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest'"),
        ({"endingOffsets": '{"flights": {"0": -2}}'}, "'endingOffsets' has -2"),
        ({"startingTimestamp": "-5"}, "'startingTimestamp' is '-5'"),
        ({"startingOffsetsByTimestamp": '{"flights": {"0": -1}}'}, "has -1 for flights-0; a time"),
        (
            {"startingOffsetsByTimestamp": f'{{"flights": {{"0": {2**63}}}}}'},
            "has 9223372036854775808 for flights-0",
        ),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "'guess'; it must be error or latest"),
        ({"minPartitions": "a"}, "'minPartitions' is 'a'; it must be a whole number of 1"),
        ({"minPartitions": "1.0"}, "'minPartitions' is '1.0'"),
        ({"minPartitions": "0"}, "'minPartitions' is '0'"),
        ({"minPartitions": "-1"}, "'minPartitions' is '-1'"),
        ({"maxRecordsPerPartition": "0"}, "'maxRecordsPerPartition' is '0'"),
        ({"pollTimeoutMs": "0"}, "'pollTimeoutMs' is '0'"),
        ({"failOnDataLoss": "maybe"}, "'failOnDataLoss' is 'maybe'; it must be true or false"),
        ({"includeHeaders": "1"}, "'includeHeaders' is '1'"),
        ({"isolationLevel": "serializable"}, "'isolationLevel' is 'serializable'"),
        ({"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is not for a batch read"),
    ],
)
def test_wrong_batch_options_are_refused_by_name(options: dict[str, str], naming: str) -> None:
    with pytest.raises(InvalidConfig, match=naming):
        batch(**options)


@pytest.mark.parametrize(
    ("options", "naming"),
    [
        ({"startingOffsets": "latest"}, "needs the option 'groupId'.*lost silently"),
        ({"startingOffsets": '{"flights": {"0": -1}}'}, "lost silently"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"},
            "lost silently",
        ),
        ({"endingOffsets": "latest"}, "'endingOffsets' is not for a stream read"),
        ({"endingTimestamp": "5"}, "'endingTimestamp' is not for a stream read"),
        ({"endingOffsetsByTimestamp": "{}"}, "'endingOffsetsByTimestamp' is not for a stream"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "'minOffsetsPerTrigger' is 5, more than maxOffsetsPerTrigger, 4",
        ),
        ({"maxTriggerDelay": "1s"}, "'maxTriggerDelay' .*give that too"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "15m"}, "ambiguous: write min"),
        ({"maxBytesPerTrigger": "0"}, "'maxBytesPerTrigger' is '0'; it must be 1 bytes or more"),
        ({"maxBytesPerTrigger": "1MB"}, "ambiguous: write MiB"),
        ({"retentionHold": "true"}, "'retentionHold' .*give a groupId"),
        ({"retentionHold": "true", "groupId": "a b"}, "'retentionHold' needs a groupId of"),
        ({"groupId": "g", "retentionHoldBytes": "1"}, "set that to true"),
        ({"groupId": "__query_start.g"}, "'groupId' begins with '__query_start.'"),
        ({"groupId": "g" * 1001}, "'groupId' has 1001 characters"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' is '0'"),
    ],
)
def test_wrong_stream_options_are_refused_by_name(options: dict[str, str], naming: str) -> None:
    with pytest.raises(InvalidConfig, match=naming):
        stream(**options)


def test_a_hold_of_some_partitions_is_refused_since_it_would_hold_the_others_unread() -> None:
    options = {"bootstrap": "a:1", "assign": '{"t": [0]}', "groupId": "g", "retentionHold": "true"}
    with pytest.raises(InvalidConfig, match=r"'retentionHold' keeps whole topics.*use 'subscribe'"):
        parse_options(options, Mode.STREAM)


def test_stream_without_a_group_requires_a_start() -> None:
    with pytest.raises(InvalidConfig, match="needs the option 'groupId'"):
        parse_options(LEAST, Mode.STREAM)


def test_bootstrap_and_a_selection_are_required() -> None:
    with pytest.raises(InvalidConfig, match="'bootstrap' is missing"):
        parse_options({"subscribe": "t"}, Mode.BATCH)
    with pytest.raises(InvalidConfig, match=r"exactly one .* none is given"):
        parse_options({"bootstrap": "a:1"}, Mode.BATCH)


@pytest.mark.parametrize("assign", ["[]", "{}", '{"t": []}', '{"t": [-1]}', '{"t": 0}', "t:0"])
def test_wrong_assignments_are_refused(assign: str) -> None:
    with pytest.raises(InvalidConfig, match="'assign'"):
        parse_options({"bootstrap": "a:1", "assign": assign}, Mode.BATCH)


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="not a regular expression"):
        parse_options({"bootstrap": "a:1", "subscribePattern": "("}, Mode.BATCH)


def test_a_catalog_table_is_refused_since_spark_would_lose_its_options() -> None:
    """Spark 4.3 shows CREATE TABLE's options to schema() and none of them to reader()."""
    created = LEAST | {"provider": "quorumlog", "option.subscribe": "flights", "owner": "me"}
    with pytest.raises(InvalidConfig, match="use CREATE TEMPORARY VIEW"):
        check_names(created)
    with pytest.raises(InvalidConfig, match="use CREATE TEMPORARY VIEW"):
        parse_options({}, Mode.BATCH)
