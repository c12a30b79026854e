"""The hand-written envelope codecs agree with the generated messages."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker import FetchOutcome, FetchSpec
from quorumlog.errors import OffsetOutOfRange
from quorumlog.frontends.grpc.envelopes import ProduceBatches, encode_batches, encode_fetch
from quorumlog.proto import log_pb2

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    topic=st.text(max_size=20),
    partition=INT32,
    leader_epoch=st.none() | INT32,
    records=st.binary(max_size=300),
    topic_id=st.binary(max_size=20),
)
REQUESTS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, correlation_id=INT64, acks=INT32, timeout_ms=INT32, partitions=st.lists(PARTS, max_size=4)
)


def message_of(fields: dict[str, Any]) -> log_pb2.ProduceRequest:
    message = log_pb2.ProduceRequest(
        correlation_id=fields["correlation_id"],
        acks=fields["acks"],
        timeout_ms=fields["timeout_ms"],
    )
    for part in fields["partitions"]:
        added = message.partitions.add(
            topic=part["topic"],
            partition=part["partition"],
            records=part["records"],
            topic_id=part.get("topic_id", b""),
        )
        if part["leader_epoch"] is not None:
            added.leader_epoch = part["leader_epoch"]
    return message


def fields_of(request: ProduceBatches) -> dict[str, Any]:
    return {
        "correlation_id": request.correlation_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "partitions": [
            {
                "topic": part.topic,
                "partition": part.partition,
                "leader_epoch": part.leader_epoch,
                "records": bytes(part.records),
                "topic_id": part.topic_id,
            }
            for part in request.partitions
        ],
    }


@given(REQUESTS)
def test_a_produce_request_reads_as_the_message_does(fields: dict[str, Any]) -> None:
    raw = message_of(fields).SerializeToString()
    assert fields_of(ProduceBatches.FromString(raw)) == fields


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read_as_the_message_reads_them(raw: bytes) -> None:
    read, message = parsed(ProduceBatches, raw), parsed(log_pb2.ProduceRequest, raw)
    if read is None or message is None:
        return  # unknown groups, which no client sends, are refused here only
    expected = [
        {
            "topic": part.topic,
            "partition": part.partition,
            "leader_epoch": part.leader_epoch if part.HasField("leader_epoch") else None,
            "records": part.records,
            "topic_id": part.topic_id,
        }
        for part in message.partitions
    ]
    assert fields_of(read) == {
        "correlation_id": message.correlation_id,
        "acks": message.acks,
        "timeout_ms": message.timeout_ms,
        "partitions": expected,
    }


def parsed(kind: Any, raw: bytes) -> Any:
    """Return the message, or None if it does not parse. Only a DecodeError is expected."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        return None


@given(REQUESTS, st.data())
def test_a_cut_or_changed_request_raises_nothing_but_a_decode_error(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(message_of(fields).SerializeToString())
    if raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
        del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        ProduceBatches.FromString(bytes(raw))
    except DecodeError:
        return


def test_the_batches_of_a_request_are_views_of_it() -> None:
    raw = message_of(
        {
            "correlation_id": 1,
            "acks": 0,
            "timeout_ms": 0,
            "partitions": [
                {"topic": "t", "partition": 0, "leader_epoch": None, "records": b"batch"}
            ],
        }
    ).SerializeToString()
    (part,) = ProduceBatches.FromString(raw).partitions
    assert isinstance(part.records, memoryview)
    assert part.records.obj is raw


@pytest.mark.parametrize(
    "raw", [b"\x0a", b"\x08", b"\x22\x05abc", b"\x00\x01", b"\x0b", b"\x22\x03"]
)
def test_field_beyond_the_end_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        ProduceBatches.FromString(raw)


OUTCOMES = st.lists(
    st.builds(
        FetchOutcome,
        st.builds(
            FetchSpec, st.sampled_from(["t", "u" * 200]), INT32, INT64, st.just(1), st.none()
        ),
        INT64,
        INT64,
        INT64,
        st.binary(max_size=300),
        INT64,
        st.none() | st.just(OffsetOutOfRange("too far")),
    ),
    max_size=4,
)


@given(OUTCOMES, INT64)
def test_fetch_response_round_trip(outcomes: list[FetchOutcome], metadata_offset: int) -> None:
    raw = encode_fetch(outcomes, metadata_offset=metadata_offset).SerializeToString()
    message = log_pb2.FetchResponse.FromString(raw)
    assert message.metadata_offset == metadata_offset
    assert len(message.results) == len(outcomes)
    for outcome, result in zip(outcomes, message.results, strict=True):
        assert (result.topic, result.partition) == (outcome.spec.topic, outcome.spec.partition)
        assert result.high_watermark == outcome.high_watermark
        assert result.last_stable_offset == outcome.last_stable_offset
        assert result.log_start_offset == outcome.log_start_offset
        if outcome.error is None:
            assert result.records == outcome.records
            assert not result.HasField("error")
        else:
            assert result.records == b""
            assert result.error.name == "OFFSET_OUT_OF_RANGE"
            assert result.error.topic == outcome.spec.topic


@given(st.binary(min_size=1, max_size=300), INT64, INT64)
def test_subscribe_response_round_trip(
    batches: bytes, next_offset: int, high_watermark: int
) -> None:
    rest = log_pb2.SubscribeResponse(next_offset=next_offset, high_watermark=high_watermark)
    message = log_pb2.SubscribeResponse.FromString(
        encode_batches(rest, batches).SerializeToString()
    )
    rest.batches = batches
    assert message == rest
