"""The mirror's message codec produces the same bytes as the generated messages."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.clients.mirror.messages import FetchedBatches, encode_append
from quorumlog.frontends.grpc.mirror_service import MirrorBatches
from quorumlog.proto import log_pb2
from quorumlog.proto import mirror_pb2 as pb

INT64 = st.integers(-(2**63), 2**63 - 1)
BATCHES = st.lists(st.binary(max_size=300), max_size=4)
PARTITIONS = st.builds(
    pb.MirrorPartition,
    topic=st.text(max_size=9),
    partition=st.integers(0, 2**31 - 1),
    topic_id=st.binary(max_size=16),
    source=st.text(max_size=20),
    log_end_offset=INT64,
)
RESULTS = st.builds(
    log_pb2.FetchResult,
    topic=st.text(max_size=9),
    partition=st.integers(0, 2**31 - 1),
    high_watermark=INT64,
    log_start_offset=INT64,
    records=st.binary(max_size=300),
)


@given(st.integers(0, 2**31 - 1), st.lists(st.tuples(PARTITIONS, BATCHES), max_size=4))
def test_an_append_is_encoded_and_read_as_the_message_is(
    timeout_ms: int, sent: list[tuple[pb.MirrorPartition, list[bytes]]]
) -> None:
    raw = encode_append(timeout_ms, sent).SerializeToString()
    message = pb.MirrorAppendRequest(timeout_ms=timeout_ms)
    for partition, batches in sent:
        message.partitions.add(records=b"".join(batches)).MergeFrom(partition)
    assert pb.MirrorAppendRequest.FromString(raw) == message
    read = MirrorBatches.FromString(message.SerializeToString())
    assert read.timeout_ms == timeout_ms
    assert [part for part, _ in read.partitions] == [part for part, _ in sent]
    assert [bytes(found) for _, found in read.partitions] == [b"".join(each) for _, each in sent]


@given(st.lists(RESULTS, max_size=4))
def test_an_answer_is_read_as_the_message_is(results: list[log_pb2.FetchResult]) -> None:
    raw = log_pb2.FetchResponse(results=results, metadata_offset=7).SerializeToString()
    found = FetchedBatches.FromString(raw).results
    assert [bytes(records) for _, records in found] == [each.records for each in results]
    for (result, records), expected in zip(found, results, strict=True):
        assert result.records == b""
        result.records = bytes(records)
        assert result == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read_as_the_message_reads_them(raw: bytes) -> None:
    for mine, generated in (
        (MirrorBatches, pb.MirrorAppendRequest),
        (FetchedBatches, log_pb2.FetchResponse),
    ):
        read: Any = parsed(mine, raw)
        message: Any = parsed(generated, raw)
        if read is None or message is None:
            continue  # unknown groups, which no broker sends, are refused here only
        elements = read.partitions if mine is MirrorBatches else read.results
        expected = message.partitions if mine is MirrorBatches else message.results
        assert [bytes(records) for _, records in elements] == [each.records for each in expected]


def parsed(kind: Any, raw: bytes) -> Any:
    try:
        return kind.FromString(raw)
    except DecodeError:
        return None


@pytest.mark.parametrize("kind", [MirrorBatches, FetchedBatches])
def test_what_runs_off_the_end_is_refused(kind: Any) -> None:
    raw = bytes([2 << 3 | 2, 5, 6 << 3 | 2, 9]) if kind is MirrorBatches else b"\x0a\x05\x32\x09"
    with pytest.raises(DecodeError):
        kind.FromString(raw)
