"""The codecs of Produce and Fetch produce the bytes of the schemas."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.kafka_client import body_of

from quorumlog.errors import InvalidRequest
from quorumlog.errors.requests import RecordError
from quorumlog.frontends.kafka.codecs.fetch import (
    FetchPart,
    FetchResult,
    FetchTopic,
    encode_end,
    encode_found,
    encode_result,
    encode_top,
    encode_topic,
    read_fetch,
)
from quorumlog.frontends.kafka.codecs.leaders import CurrentLeader, NodeEndpoint
from quorumlog.frontends.kafka.codecs.primitives import I32, string_of
from quorumlog.frontends.kafka.codecs.produce import (
    ProducePart,
    ProduceResult,
    ProduceTopic,
    encode_produce,
    read_produce,
)

from .any_request import answer_bytes

PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 14), range(4, 19)
NO_ID = bytes(16)

INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=40)
IDS = st.binary(min_size=16, max_size=16)
CODES = st.sampled_from((0, 1, 6, 74, 100))
RECORDS = st.none() | st.binary(max_size=300)
LEADERS = st.none() | st.builds(CurrentLeader, st.integers(0, 9), st.integers(0, 9))
ENDPOINTS = st.lists(
    st.builds(NodeEndpoint, st.integers(0, 9), NAMES, st.integers(1, 65535), st.none() | NAMES),
    max_size=3,
)


def title(version: int, *, name: str, topic_id: bytes, field: str) -> dict[str, Any]:
    """Return the field that identifies a topic in a version."""
    return {"topic_id": topic_id} if version >= 13 else {field: name}


# --- Produce -------------------------------------------------------------------------------------

PRODUCE_TOPICS = st.lists(
    st.tuples(NAMES, IDS, st.lists(st.tuples(INT32, RECORDS), max_size=4)), max_size=3
)


@pytest.mark.slow
@given(
    version=st.sampled_from(PRODUCE_VERSIONS),
    transactional_id=st.none() | NAMES,
    acks=st.sampled_from((-1, 0, 1, 7)),
    timeout=st.integers(0, 2**31 - 1),
    topics=PRODUCE_TOPICS,
)
@settings(deadline=None, max_examples=60)
def test_produce_requests_are_read_as_the_schemas_write_them(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[int, bytes | None]]]],
) -> None:
    body = body_of(
        0,
        version,
        {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": timeout,
            "topic_data": [
                {
                    **title(version, name=name, topic_id=topic_id, field="name"),
                    "partition_data": [
                        {"index": index, "records": records} for index, records in parts
                    ],
                }
                for name, topic_id, parts in topics
            ],
        },
    )
    request = read_produce(version, memoryview(body))
    assert (request.transactional_id, request.acks) == (transactional_id, acks)
    assert request.timeout_ms == timeout
    assert request.topics == [
        produce_topic(version, name, topic_id, parts) for name, topic_id, parts in topics
    ]


def produce_topic(
    version: int, name: str, topic_id: bytes, parts: Sequence[tuple[int, bytes | None]] = ()
) -> ProduceTopic:
    """Return a topic as the codec decodes it."""
    title = topic_id if version >= 13 else string_of(name, flexible=version >= 9)
    return ProduceTopic(
        name if version < 13 else "",
        topic_id if version >= 13 else b"",
        [ProducePart(index, records) for index, records in parts],  # type: ignore[arg-type]
        memoryview(title),
    )


def test_a_produce_request_leaves_its_records_where_they_are() -> None:
    frame = bytearray(
        body_of(
            0,
            9,
            {
                "transactional_id": None,
                "acks": 1,
                "timeout": 1,
                "topic_data": [
                    {"name": "t", "partition_data": [{"index": 0, "records": b"records"}]}
                ],
            },
        )
    )
    records = read_produce(9, memoryview(frame)).topics[0].parts[0].records
    assert records is not None
    frame[frame.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


PRODUCE_RESULTS = st.builds(
    ProduceResult,
    INT32,
    CODES,
    INT64,
    st.integers(-1, 2**40),
    INT64,
    st.none() | NAMES,
    LEADERS,
    st.lists(st.builds(RecordError, INT32, NAMES), max_size=3),
)


@pytest.mark.slow
@given(
    version=st.sampled_from(PRODUCE_VERSIONS),
    topics=st.lists(st.tuples(NAMES, IDS, st.lists(PRODUCE_RESULTS, max_size=4)), max_size=3),
    throttle_ms=st.integers(0, 2**31 - 1),
    endpoints=ENDPOINTS,
)
@settings(deadline=None, max_examples=60)
def test_produce_answers_are_written_as_the_schemas_write_them(
    version: int,
    topics: Sequence[tuple[str, bytes, Sequence[ProduceResult]]],
    throttle_ms: int,
    endpoints: Sequence[NodeEndpoint],
) -> None:
    fields: dict[str, Any] = {
        "responses": [
            {
                **title(version, name=name, topic_id=topic_id, field="name"),
                "partition_responses": [
                    {
                        "index": one.partition,
                        "error_code": one.error_code,
                        "base_offset": one.base_offset,
                        "log_append_time": one.log_append_time_ms,
                        "log_start_offset": one.log_start_offset,
                        "record_errors": [
                            {"batch_index": index, "batch_index_error_message": message}
                            for index, message in one.record_errors
                        ],
                        "error_message": one.error_message,
                        **expected_leader(one.leader),
                    }
                    for one in results
                ],
            }
            for name, topic_id, results in topics
        ],
        "throttle_time": throttle_ms,
        "node_endpoints": expected_endpoints(endpoints),
    }
    ours = encode_produce(
        version,
        [(produce_topic(version, name, topic_id), results) for name, topic_id, results in topics],
        throttle_ms=throttle_ms,
        endpoints=endpoints,
    )
    assert ours == answer_bytes(0, version, 13, fields)


def expected_leader(leader: CurrentLeader | None) -> dict[str, Any]:
    if leader is None:
        return {}
    return {"current_leader": {"leader_id": leader.node_id, "leader_epoch": leader.epoch}}


def expected_endpoints(endpoints: Sequence[NodeEndpoint]) -> list[dict[str, Any]]:
    return [
        {"node_id": one.node_id, "host": one.host, "port": one.port, "rack": one.rack}
        for one in endpoints
    ]


# --- Fetch ---------------------------------------------------------------------------------------

FETCH_PARTS = st.builds(FetchPart, INT32, INT32, INT64, INT32, INT32)


def asked_part(part: FetchPart) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "current_leader_epoch": part.leader_epoch,
        "fetch_offset": part.offset,
        "last_fetched_epoch": part.last_epoch,
        "log_start_offset": 3,
        "partition_max_bytes": part.max_bytes,
    }


def as_read(version: int, name: str, topic_id: bytes, parts: Sequence[FetchPart]) -> FetchTopic:
    """Return the fields of a partition that a version has."""
    read = [
        part._replace(
            leader_epoch=part.leader_epoch if version >= 9 else -1,
            last_epoch=part.last_epoch if version >= 12 else -1,
        )
        for part in parts
    ]
    if version < 13:
        return FetchTopic(name, b"", read)
    return FetchTopic("", topic_id, read)


@pytest.mark.slow
@given(
    version=st.sampled_from(FETCH_VERSIONS),
    replica_id=st.integers(-1, 5),
    head=st.tuples(INT32.filter(lambda ms: ms >= 0), INT32, INT32, st.integers(0, 1)),
    session=st.tuples(INT32, INT32),
    topics=st.lists(st.tuples(NAMES, IDS, st.lists(FETCH_PARTS, max_size=4)), max_size=3),
    forgotten=st.lists(st.tuples(NAMES, IDS, st.lists(INT32, max_size=4)), max_size=3),
    rack=NAMES,
    extras=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_fetch_requests_are_read_as_the_schemas_write_them(
    version: int,
    replica_id: int,
    head: tuple[int, int, int, int],
    session: tuple[int, int],
    topics: Sequence[tuple[str, bytes, Sequence[FetchPart]]],
    forgotten: Sequence[tuple[str, bytes, Sequence[int]]],
    rack: str,
    extras: bool,
) -> None:
    asker: dict[str, Any] = {"replica_id": replica_id}
    if version >= 15:
        asker = {"replica_state": {"replica_id": replica_id, "replica_epoch": 7}}
    more = {"high_watermark": 9} if extras and version >= 18 else {}
    fields = {
        **asker,
        **({"cluster_id": "c"} if extras and version >= 12 else {}),
        "max_wait": head[0],
        "min_bytes": head[1],
        "max_bytes": head[2],
        "isolation_level": head[3],
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            {
                **title(version, name=name, topic_id=topic_id, field="topic"),
                "partitions": [{**asked_part(part), **more} for part in parts],
            }
            for name, topic_id, parts in topics
        ],
        "forgotten_topics_data": [
            {
                **title(version, name=name, topic_id=topic_id, field="topic"),
                "partitions": indexes,
            }
            for name, topic_id, indexes in forgotten
        ],
        "rack_id": rack,
    }
    request = read_fetch(version, memoryview(body_of(1, version, fields)))
    assert request.replica_id == replica_id
    assert head == (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation)
    if version >= 7:
        assert (request.session_id, request.session_epoch) == session
        assert request.forgotten == [
            (name if version < 13 else topic_id, list(indexes))
            for name, topic_id, indexes in forgotten
            if indexes
        ]
    assert request.rack == (rack if version >= 11 else "")
    assert request.topics == [as_read(version, *topic) for topic in topics]


FETCH_RESULTS = st.tuples(
    st.builds(
        FetchResult,
        INT32,
        CODES,
        INT64,
        INT64,
        INT64,
        st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
        st.integers(-1, 9),
        st.just(0),
        st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
        LEADERS,
    ),
    st.binary(max_size=300),
)


@pytest.mark.slow
@given(
    version=st.sampled_from(FETCH_VERSIONS),
    topics=st.lists(st.tuples(NAMES, IDS, st.lists(FETCH_RESULTS, max_size=4)), max_size=3),
    throttle_ms=st.integers(0, 2**31 - 1),
    error_code=CODES,
    session_id=INT32,
    endpoints=ENDPOINTS,
)
@settings(deadline=None, max_examples=60)
def test_fetch_answers_are_written_as_the_schemas_write_them(
    version: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[FetchResult, bytes]]]],
    throttle_ms: int,
    error_code: int,
    session_id: int,
    endpoints: Sequence[NodeEndpoint],
) -> None:
    fields: dict[str, Any] = {
        "throttle_time": throttle_ms,
        "error_code": error_code,
        "session_id": session_id,
        "responses": [
            {
                **title(version, name=name, topic_id=topic_id, field="topic"),
                "partitions": [fetch_result(one, records) for one, records in results],
            }
            for name, topic_id, results in topics
        ],
        "node_endpoints": expected_endpoints(endpoints),
    }
    top = encode_top(
        version,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        topic_count=len(topics),
    )
    ours = [top]
    for name, topic_id, results in topics:
        count = len(results)
        ours.append(encode_topic(version, name=name, topic_id=topic_id, part_count=count))
        for one, records in results:
            sized = one._replace(records_size=len(records))
            before, behind = encode_result(version, sized)
            ours += (before, records, behind)
        ours.append(b"\x00" if version >= 12 else b"")
    ours.append(encode_end(version, endpoints))
    assert b"".join(ours) == answer_bytes(1, version, 18, fields)


def test_tagged_fields_of_any_partition_of_a_fetch_are_skipped() -> None:
    """Partitions without tagged fields are decoded together."""

    def part(index: int, tags: bytes) -> bytes:
        return Struct(">iiqiqi").pack(index, -1, 10 + index, 4, -1, 99) + tags

    some = b"\x02\x05\x01x\x09\x00"  # two tagged fields, of one byte and of none
    for tagged in (set(), {0}, {1}, {3}, {0, 1, 2, 3}):
        parts = b"".join(part(n, some if n in tagged else b"\x00") for n in range(4))
        body = bytes(13) + bytes(8) + b"\x02" + bytes(16) + b"\x05" + parts + b"\x00\x01\x01\x00"
        (topic,) = read_fetch(15, memoryview(body)).topics
        assert topic.parts == [FetchPart(n, -1, 10 + n, 4, 99) for n in range(4)]
        for end in range(len(body)):
            with pytest.raises(InvalidRequest):
                read_fetch(15, memoryview(body)[:end])


@pytest.mark.parametrize("tells_aborted", [False, True])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_usual_fetch_results_are_encoded_like_all_others(version: int, tells_aborted: bool) -> None:
    for size in (0, 1, 127, 128, 70_000, 2**31 - 2):
        usual = encode_found(
            version,
            partition=7,
            high_watermark=2**40,
            last_stable_offset=2**40 - 1,
            log_start_offset=3,
            tells_aborted=tells_aborted,
            preferred_replica=-1 if size else 5,
            records_size=size,
        )
        result = FetchResult(
            7, 0, 2**40, 2**40 - 1, 3, () if tells_aborted else None, -1 if size else 5, size
        )
        assert (usual, b"\x00" if version >= 12 else b"") == encode_result(version, result)


def fetch_result(one: FetchResult, records: bytes) -> dict[str, Any]:
    diverging = {}
    if one.diverging is not None:
        epoch, end_offset = one.diverging
        diverging = {"diverging_epoch": {"epoch": epoch, "end_offset": end_offset}}
    aborted = one.aborted
    return {
        "partition_index": one.partition,
        "error_code": one.error_code,
        "high_watermark": one.high_watermark,
        "last_stable_offset": one.last_stable_offset,
        "log_start_offset": one.log_start_offset,
        **diverging,
        **expected_leader(one.leader),
        "aborted_transactions": None
        if aborted is None
        else [{"producer_id": each, "first_offset": first} for each, first in aborted],
        "preferred_read_replica": one.preferred_replica,
        "records": records,
    }


# --- malformed requests --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_cut_of_a_produce_request_is_refused(version: int) -> None:
    body = body_of(
        0,
        version,
        {
            "transactional_id": "x",
            "acks": 1,
            "timeout": 1,
            "topic_data": [
                {
                    **title(version, name="t", topic_id=b"i" * 16, field="name"),
                    "partition_data": [{"index": 0, "records": b"records"}],
                }
            ],
        },
    )
    for end in range(len(body)):
        with pytest.raises(InvalidRequest):
            read_produce(version, memoryview(body)[:end])
    assert (
        read_produce(version, memoryview(body + b"more")).acks == 1
    )  # some clients send extra bytes


@pytest.mark.parametrize("version", [4, 7, 11, 12, 18])
def test_every_cut_of_a_fetch_request_is_refused(version: int) -> None:
    part = {
        "partition": 1,
        "current_leader_epoch": 2,
        "fetch_offset": 3,
        "last_fetched_epoch": 4,
        "log_start_offset": 5,
        "partition_max_bytes": 6,
    }
    named = title(version, name="t", topic_id=b"i" * 16, field="topic")
    asker: dict[str, Any] = {"replica_state": {"replica_id": 5, "replica_epoch": 7}}
    body = body_of(
        1,
        version,
        {
            **(asker if version >= 15 else {"replica_id": 5}),
            "max_wait": 1,
            "min_bytes": 1,
            "max_bytes": 1,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{**named, "partitions": [part]}],
            "forgotten_topics_data": [{**named, "partitions": (1, 2)}],
            "rack_id": "r",
        },
    )
    for end in range(len(body)):
        with pytest.raises(InvalidRequest):
            read_fetch(version, memoryview(body)[:end])
    assert read_fetch(version, memoryview(body + b"more")).replica_id == 5


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x0f\x42\x41", b"\x00\x00\x00\x09"])
def test_count_larger_than_its_frame_is_refused_before_memory_is_allocated(count: bytes) -> None:
    with pytest.raises(InvalidRequest, match="entries are claimed"):
        read_produce(3, memoryview(b"\xff\xff\x00\x01\x00\x00\x00\x01" + count + b"\x00" * 20))
    with pytest.raises(InvalidRequest, match="entries are claimed"):
        read_fetch(4, memoryview(bytes(17) + count + b"\x00" * 20))


def test_produce_request_with_too_many_tiny_partitions_is_refused() -> None:
    """Each one takes hundreds of times its bytes in the frame."""
    part = b"\0\0\0\1\xff\xff\xff\xff"
    topic = b"\0\1t" + I32.pack(4_000) + 4_000 * part
    head = b"\xff\xff\0\1\0\0\0\1"
    assert len(read_produce(3, memoryview(head + I32.pack(2) + 2 * topic)).topics) == 2
    with pytest.raises(InvalidRequest, match="at most 10000"):
        read_produce(3, memoryview(head + I32.pack(3) + 3 * topic))


def test_fetch_request_with_too_many_tiny_partitions_is_refused() -> None:
    topic = b"\0\1t" + I32.pack(4_000) + bytes(16 * 4_000)
    asked = memoryview(bytes(17) + I32.pack(3) + 3 * topic)
    with pytest.raises(InvalidRequest, match="at most 10000"):
        read_fetch(4, asked)
    forgotten = b"\0\1t" + I32.pack(60_000) + bytes(4 * 60_000)
    asked = memoryview(bytes(25) + I32.pack(0) + I32.pack(2) + 2 * forgotten)
    with pytest.raises(InvalidRequest, match="at most 10000"):
        read_fetch(7, asked)
