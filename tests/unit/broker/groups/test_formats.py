"""Keys and values of `__consumer_offsets`: bytes as in Kafka, and round trips of all records."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.broker.groups import records as r
from quorumlog.broker.groups.formats import (
    PLAIN_OFFSETS_MAX,
    decode,
    encode,
    encode_plain_commit,
)
from quorumlog.broker.groups.requests import PlainCommit, PlainOffsets
from quorumlog.errors import CorruptionError
from quorumlog.ids import TopicId
from quorumlog.records import Record, encode_plain_batch

ID = TopicId(bytes(range(16)))


def text(value: str) -> bytes:
    content = value.encode()
    return struct.pack(">h", len(content)) + content


def compact(value: str) -> bytes:
    content = value.encode()
    return bytes([len(content) + 1]) + content


OFFSET_KEY = struct.pack(">h", 1) + text("g") + text("topic") + struct.pack(">i", 3)


def test_an_offset_is_written_as_version_3() -> None:
    record = r.OffsetCommitted(
        group="g", topic="topic", partition=3, offset=42, leader_epoch=7, note="n", commit_ms=1000
    )
    value = struct.pack(">hqi", 3, 42, 7) + text("n") + struct.pack(">q", 1000)
    assert encode(record) == (OFFSET_KEY, value)


def test_an_offset_of_a_known_topic_id_is_written_as_version_4() -> None:
    record = r.OffsetCommitted(
        group="g", topic="topic", partition=3, offset=42, note="n", commit_ms=1000, topic_id=ID
    )
    value = (
        struct.pack(">hqi", 4, 42, -1)
        + compact("n")
        + struct.pack(">q", 1000)
        + bytes([1, 0, 16])
        + ID
    )
    assert encode(record) == (OFFSET_KEY, value)


def test_an_offset_with_a_time_to_expire_is_written_as_version_1() -> None:
    record = r.OffsetCommitted(
        group="g", topic="topic", partition=3, offset=42, commit_ms=1000, expire_ms=2000
    )
    value = struct.pack(">hq", 1, 42) + text("") + struct.pack(">qq", 1000, 2000)
    assert encode(record) == (OFFSET_KEY, value)


@pytest.mark.parametrize(
    ("value", "leader_epoch", "expire_ms"),
    [
        (struct.pack(">hq", 0, 42) + text("n") + struct.pack(">q", 9), -1, -1),
        (struct.pack(">hq", 1, 42) + text("n") + struct.pack(">qq", 9, 11), -1, 11),
        (struct.pack(">hq", 2, 42) + text("n") + struct.pack(">q", 9), -1, -1),
        (struct.pack(">hqi", 3, 42, 5) + text("n") + struct.pack(">q", 9), 5, -1),
        (struct.pack(">hqi", 4, 42, 5) + compact("n") + struct.pack(">q", 9) + b"\0", 5, -1),
    ],
)
@pytest.mark.parametrize("kind", [0, 1])
def test_every_version_of_an_offset_is_read(
    value: bytes, leader_epoch: int, expire_ms: int, kind: int
) -> None:
    key = struct.pack(">h", kind) + OFFSET_KEY[2:]
    assert decode(key, value) == r.OffsetCommitted(
        group="g",
        topic="topic",
        partition=3,
        offset=42,
        leader_epoch=leader_epoch,
        note="n",
        commit_ms=9,
        expire_ms=expire_ms,
    )


def member_bytes(version: int) -> bytes:
    flexible = version >= 4
    put = compact if flexible else text

    def content(value: bytes) -> bytes:
        length = bytes([len(value) + 1]) if flexible else struct.pack(">i", len(value))
        return length + value

    found = put("m")
    if version >= 3:
        found += put("static")
    found += put("client") + put("/host")
    if version >= 1:
        found += struct.pack(">i", 300)
    found += struct.pack(">i", 100) + content(b"sub") + content(b"asg")
    return found + (b"\0" if flexible else b"")


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_classic_group_is_read(version: int) -> None:
    flexible = version >= 4
    put = compact if flexible else text
    value = struct.pack(">h", version) + put("consumer") + struct.pack(">i", 6) + put("range")
    value += put("m")
    if version >= 2:
        value += struct.pack(">q", 77)
    value += (b"\2" if flexible else struct.pack(">i", 1)) + member_bytes(version)
    value += b"\0" if flexible else b""
    found = decode(struct.pack(">h", 2) + text("g"), value)
    assert found == r.ClassicGroup(
        group="g",
        protocol_type="consumer",
        generation=6,
        protocol="range",
        leader="m",
        state_ms=77 if version >= 2 else -1,
        members=(
            r.StoredMember(
                member_id="m",
                instance_id="static" if version >= 3 else None,
                client_id="client",
                client_host="/host",
                rebalance_timeout_ms=300 if version >= 1 else 100,
                session_timeout_ms=100,
                subscription=b"sub",
                assignment=b"asg",
            ),
        ),
    )
    if version == 3:
        assert found is not None
        assert encode(found) == (struct.pack(">h", 2) + text("g"), value)


def test_an_empty_classic_group_has_no_protocol_and_no_leader() -> None:
    record = r.ClassicGroup(
        group="g", protocol_type="", generation=0, protocol=None, leader=None, state_ms=5
    )
    value = struct.pack(">h", 3) + text("") + struct.pack(">i", 0) + b"\xff\xff\xff\xff"
    value += struct.pack(">qi", 5, 0)
    assert encode(record) == (struct.pack(">h", 2) + text("g"), value)


def test_a_group_of_kip_848_is_written_as_its_schema_says() -> None:
    key = struct.pack(">h", 3) + text("g")
    assert encode(r.ConsumerGroup(group="g", epoch=9)) == (key, struct.pack(">hi", 0, 9) + b"\0")
    hashed = struct.pack(">hi", 0, 9) + bytes([1, 0, 8]) + struct.pack(">q", -5)
    assert encode(r.ConsumerGroup(group="g", epoch=9, metadata_hash=-5)) == (key, hashed)


def test_a_member_that_speaks_classic_is_written_with_its_protocols() -> None:
    record = r.ConsumerMember(
        group="g",
        member_id="m",
        client_id="c",
        client_host="/h",
        topics=frozenset({"b", "a"}),
        rebalance_timeout_ms=500,
        classic=r.ClassicMemberMetadata(session_timeout_ms=40, protocols=(("range", b"xy"),)),
    )
    face = b"\1" + struct.pack(">i", 40) + b"\2" + compact("range") + b"\3xy\0" + b"\0"
    value = (
        struct.pack(">h", 0)
        + b"\0\0"
        + compact("c")
        + compact("/h")
        + b"\3"
        + compact("a")
        + compact("b")
        + b"\0"
        + struct.pack(">i", 500)
        + b"\0"
        + bytes([1, 0, len(face)])
        + face
    )
    assert encode(record) == (struct.pack(">h", 5) + text("g") + text("m"), value)


def test_assignments_are_written_by_topic_id() -> None:
    part = ID + b"\3" + struct.pack(">ii", 0, 2) + b"\0"
    target = r.TargetAssignment(group="g", member_id="m", partitions={ID: frozenset({2, 0})})
    names = text("g") + text("m")
    value = struct.pack(">h", 0) + b"\2" + part + b"\0"
    assert encode(target) == (struct.pack(">h", 7) + names, value)
    current = r.CurrentAssignment(
        group="g",
        member_id="m",
        epoch=4,
        previous_epoch=3,
        state=r.MemberState.UNREVOKED_PARTITIONS,
        assigned={ID: frozenset({0, 2})},
    )
    value = struct.pack(">hiib", 0, 4, 3, 2) + b"\2" + part + b"\1" + b"\0"
    assert encode(current) == (struct.pack(">h", 8) + names, value)


def test_tags_that_are_not_known_are_passed_over() -> None:
    epochs = bytes([1, 0, 9, 3]) + struct.pack(">ii", 5, 6)  # KIP-1251
    part = ID + b"\3" + struct.pack(">ii", 0, 2) + epochs
    value = struct.pack(">hiib", 0, 4, 3, 1) + b"\2" + part + b"\1" + bytes([1, 9, 2, 7, 7])
    found = decode(struct.pack(">h", 8) + text("g") + text("m"), value)
    assert isinstance(found, r.CurrentAssignment)
    assert found.assigned == {ID: frozenset({0, 2})}


@pytest.mark.parametrize("kind", [4, 9, 10, 11, 15, 17, 21, 1000, -1])
def test_types_that_are_not_ours_are_skipped(kind: int) -> None:
    assert decode(struct.pack(">h", kind) + b"anything", b"\xff") is None
    assert decode(struct.pack(">h", kind) + b"anything", None) is None


def test_a_record_without_a_key_is_skipped() -> None:
    assert decode(None, b"value") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", b""),
        (OFFSET_KEY[:-1], b""),
        (OFFSET_KEY, b""),
        (OFFSET_KEY, struct.pack(">hq", 9, 1)),
        (OFFSET_KEY, struct.pack(">hqi", 3, 42, 7) + struct.pack(">h", 400) + b"x"),
        (OFFSET_KEY, struct.pack(">hqi", 3, 42, 7) + text("n")),
        (struct.pack(">h", 2) + text("g"), struct.pack(">h", 3) + b"\xff\xff"),
        (struct.pack(">h", 3) + text("g"), struct.pack(">hi", 1, 5)),
        (struct.pack(">h", 7) + text("g") + text("m"), b"\0\0\xff\xff\xff\xff\x0f"),
        (struct.pack(">h", 2) + struct.pack(">h", 2) + b"\xff\xfe", None),
    ],
)
def test_damaged_record_is_reported_with_its_offset(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptionError, match="record 1234 is malformed"):
        decode(key, value, offset=1234)


NAMES = st.text(min_size=1, max_size=12)
NUMBERS = st.integers(0, 2**31 - 1)
TIMES = st.integers(-1, 2**60)
CONTENT = st.binary(max_size=20)
MAYBE = st.none() | NAMES
IDS = st.binary(min_size=16, max_size=16).filter(any).map(TopicId)
PARTITIONS = st.dictionaries(IDS, st.frozensets(NUMBERS, min_size=1, max_size=4), max_size=3)

OFFSETS = st.builds(
    r.OffsetCommitted,
    group=NAMES,
    topic=NAMES,
    partition=NUMBERS,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 100),
    note=st.text(max_size=20),
    commit_ms=TIMES,
    expire_ms=st.just(-1),
    topic_id=st.none() | IDS,
)
MEMBERS = st.builds(
    r.StoredMember,
    member_id=NAMES,
    instance_id=MAYBE,
    client_id=NAMES,
    client_host=NAMES,
    rebalance_timeout_ms=NUMBERS,
    session_timeout_ms=NUMBERS,
    subscription=CONTENT,
    assignment=CONTENT,
)
FACES = st.builds(
    r.ClassicMemberMetadata,
    session_timeout_ms=NUMBERS,
    protocols=st.lists(st.tuples(NAMES, CONTENT), max_size=3).map(tuple),
)
TOPICS = st.frozensets(NAMES, max_size=3)
RECORDS = st.one_of(
    OFFSETS,
    st.builds(r.OffsetForgotten, group=NAMES, topic=NAMES, partition=NUMBERS),
    st.builds(
        r.ClassicGroup,
        group=NAMES,
        protocol_type=st.text(max_size=8),
        generation=NUMBERS,
        protocol=MAYBE,
        leader=MAYBE,
        state_ms=TIMES,
        members=st.lists(MEMBERS, max_size=3).map(tuple),
    ),
    st.builds(r.ClassicGroupForgotten, group=NAMES),
    st.builds(
        r.ConsumerGroup,
        group=NAMES,
        epoch=NUMBERS,
        metadata_hash=st.integers(-(2**63), 2**63 - 1),
    ),
    st.builds(r.ConsumerGroupForgotten, group=NAMES),
    st.builds(
        r.ConsumerMember,
        group=NAMES,
        member_id=NAMES,
        instance_id=MAYBE,
        rack=MAYBE,
        client_id=NAMES,
        client_host=NAMES,
        topics=TOPICS,
        pattern=MAYBE,
        assignor=MAYBE,
        rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
        classic=st.none() | FACES,
    ),
    st.builds(r.ConsumerMemberForgotten, group=NAMES, member_id=NAMES),
    st.builds(r.TargetEpoch, group=NAMES, epoch=NUMBERS),
    st.builds(r.TargetEpochForgotten, group=NAMES),
    st.builds(r.TargetAssignment, group=NAMES, member_id=NAMES, partitions=PARTITIONS),
    st.builds(r.TargetAssignmentForgotten, group=NAMES, member_id=NAMES),
    st.builds(
        r.CurrentAssignment,
        group=NAMES,
        member_id=NAMES,
        epoch=st.integers(-2, 2**31 - 1),
        previous_epoch=st.integers(-2, 2**31 - 1),
        state=st.sampled_from(r.MemberState),
        assigned=PARTITIONS,
        pending_revocation=PARTITIONS,
    ),
    st.builds(r.CurrentAssignmentForgotten, group=NAMES, member_id=NAMES),
    st.builds(
        r.ResolvedPattern,
        group=NAMES,
        pattern=NAMES,
        topics=TOPICS,
        version=NUMBERS,
        resolved_ms=TIMES,
    ),
    st.builds(r.ResolvedPatternForgotten, group=NAMES, pattern=NAMES),
)


@settings(max_examples=50)
@given(RECORDS)
def test_every_record_comes_back_as_it_was(record: r.GroupRecord) -> None:
    key, value = encode(record)
    assert decode(key, value) == record


@settings(max_examples=50)
@given(RECORDS, st.data())
def test_a_record_cut_short_is_damaged_or_another_one_and_nothing_else(
    record: r.GroupRecord, data: st.DataObject
) -> None:
    key, value = encode(record)
    value = value or b""
    cut = data.draw(st.integers(0, max(0, len(value) - 1)))
    with suppress(CorruptionError):
        decode(key, value[:cut], offset=5)


NUMBERED = st.tuples(
    st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(-1, 2**31 - 1)
)
COMMITTED_TOPICS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=249),
        st.binary(min_size=16, max_size=16).filter(any),
        st.lists(NUMBERED, min_size=1, max_size=PLAIN_OFFSETS_MAX // 4),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=50)
@given(NAMES, COMMITTED_TOPICS, st.integers(0, 2**48))
def test_batch_of_a_plain_commit_has_the_records_of_the_commit(
    group: str, topics: list[tuple[str, bytes, list[tuple[int, int, int]]]], now_ms: int
) -> None:
    columns = tuple(PlainOffsets(name, *zip(*offsets, strict=True)) for name, _, offsets in topics)
    commit = PlainCommit(group, "m", None, 1, columns)
    records = [
        r.OffsetCommitted(
            group=group,
            topic=name,
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            commit_ms=now_ms,
            topic_id=TopicId(topic_id),
        )
        for name, topic_id, offsets in topics
        for partition, offset, leader_epoch in offsets
    ]
    usual = encode_plain_batch([Record(0, now_ms, *encode(record)) for record in records])
    ids = tuple(TopicId(topic_id) for _, topic_id, _ in topics)
    assert encode_plain_commit(commit, ids, now_ms) == usual
