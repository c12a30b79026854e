"""The codecs of Heartbeat and OffsetCommit produce the bytes of the schemas."""

from dataclasses import asdict
from struct import error as StructError
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.kafka_client import body_of

from quorumlog.errors import InvalidRequest
from quorumlog.frontends.kafka.api import Client
from quorumlog.frontends.kafka.apis import consumer_group_heartbeat, heartbeat
from quorumlog.frontends.kafka.codecs.groups import (
    COMMIT_ENTRIES_MAX,
    USUAL_BYTES_MAX,
    ClassicHeartbeatBody,
    Commit,
    CommittedPart,
    CommittedTopic,
    PlainHeartbeatBody,
    encode_commit,
    encode_heartbeat,
    encode_plain_commit,
    encode_plain_heartbeat,
    read_commit,
    read_heartbeat,
    read_plain_commit,
    read_plain_heartbeat,
)

from .any_request import answer_bytes

OFFSET_COMMIT, HEARTBEAT, CONSUMER_HEARTBEAT = 8, 12, 68
TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)
MAYBE_TEXTS = st.none() | TEXTS
NUMBERS = st.integers(-2, 2**31 - 1)


def beat_bytes(version: int, beat: ClassicHeartbeatBody) -> bytes:
    fields: dict[str, object] = {
        "group_id": beat.group,
        "generation_id": beat.generation,
        "member_id": beat.member_id,
    }
    if version >= 3:
        fields["group_instance_id"] = beat.instance_id
    return body_of(HEARTBEAT, version, fields)


def plain_bytes(version: int, beat: PlainHeartbeatBody, **arrays: object) -> bytes:
    pattern = {"subscribed_topic_regex": beat.pattern} if version >= 1 else {}
    return body_of(
        CONSUMER_HEARTBEAT,
        version,
        {
            "group_id": beat.group,
            "member_id": beat.member_id,
            "member_epoch": beat.member_epoch,
            "instance_id": beat.instance_id,
            "rack_id": beat.rack,
            "rebalance_timeout": beat.rebalance_timeout_ms,
            "subscribed_topic_names": None,
            "server_assignor": beat.assignor,
            "topic_partitions": None,
            **pattern,
            **arrays,
        },
    )


PLAIN = PlainHeartbeatBody("group", "member", 3, None, "rack", 1_000, None, "uniform")


@given(st.integers(0, 4), TEXTS, NUMBERS, TEXTS, MAYBE_TEXTS)
def test_a_classic_heartbeat_is_read_as_its_schema_writes_it(
    version: int, group: str, generation: int, member_id: str, instance_id: str | None
) -> None:
    beat = ClassicHeartbeatBody(group, generation, member_id, instance_id if version >= 3 else None)
    assert read_heartbeat(version, memoryview(beat_bytes(version, beat))) == beat


@given(
    st.integers(0, 1),
    st.builds(
        PlainHeartbeatBody,
        TEXTS,
        TEXTS,
        NUMBERS,
        MAYBE_TEXTS,
        MAYBE_TEXTS,
        NUMBERS,
        MAYBE_TEXTS,
        MAYBE_TEXTS,
    ),
)
def test_a_plain_heartbeat_of_kip_848_is_read_as_its_schema_writes_it(
    version: int, beat: PlainHeartbeatBody
) -> None:
    if version == 0:
        beat = beat._replace(pattern=None)
    assert read_plain_heartbeat(version, memoryview(plain_bytes(version, beat))) == beat


@pytest.mark.parametrize(
    "arrays",
    [
        {"subscribed_topic_names": ()},
        {"subscribed_topic_names": ("topic",)},
        {"topic_partitions": ()},
        {"topic_partitions": ({"topic_id": bytes(range(16)), "partitions": (1, 2)},)},
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_that_brings_arrays_is_left_to_the_schema(
    version: int, arrays: dict[str, object]
) -> None:
    assert read_plain_heartbeat(version, memoryview(plain_bytes(version, PLAIN, **arrays))) is None


@pytest.mark.parametrize("version", range(5))
def test_a_classic_heartbeat_that_is_cut_short_is_none(version: int) -> None:
    whole = beat_bytes(version, ClassicHeartbeatBody("group", 1, "member", "static"))
    for size in range(len(whole)):
        with pytest.raises(InvalidRequest):
            read_heartbeat(version, memoryview(whole[:size]))


@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_of_kip_848_that_is_cut_short_is_none(version: int) -> None:
    whole = plain_bytes(version, PLAIN)
    for size in range(len(whole)):
        with pytest.raises(InvalidRequest):
            read_plain_heartbeat(version, memoryview(whole[:size]))


def test_string_above_the_limit_is_rejected() -> None:
    whole = plain_bytes(1, PLAIN._replace(group="g" * 32_767))
    assert read_plain_heartbeat(1, memoryview(whole)) is not None
    with pytest.raises(InvalidRequest, match="32768 bytes; send at most 32767"):
        read_plain_heartbeat(1, memoryview(plain_bytes(1, PLAIN._replace(group="g" * 32_768))))


@pytest.mark.parametrize("api", [heartbeat, consumer_group_heartbeat])
def test_long_heartbeat_is_not_decoded_before_rights_are_checked(api: ModuleType) -> None:
    """Decoded heartbeats are cached by their bytes, which an unauthorized client can send."""
    version = 1
    long = "g" * USUAL_BYTES_MAX
    body = (
        beat_bytes(version, ClassicHeartbeatBody(long, 1, "member", None))
        if api is heartbeat
        else plain_bytes(version, PLAIN._replace(group=long))
    )
    client = Client(peer="127.0.0.1:1", local="127.0.0.1:2", listener="kafka", client_id="c")
    no_broker = None  # without an authorizer to call
    assert api.at_once(no_broker, client, version, memoryview(body)) is None


def test_a_heartbeat_of_no_group_is_none() -> None:
    with pytest.raises(InvalidRequest, match="null is not allowed"):
        read_heartbeat(0, memoryview(b"\xff\xff\0\0\0\1\0\0"))


@given(st.integers(0, 4), st.sampled_from((0, 25, 27)), st.integers(0, 1_000))
def test_answers_to_classic_heartbeats_are_written_as_their_schema_does(
    version: int, code: int, throttle_ms: int
) -> None:
    fields: dict[str, object] = {"error_code": code}
    if version >= 1:
        fields["throttle_time"] = throttle_ms
    expected = answer_bytes(HEARTBEAT, version, 4, fields)
    assert encode_heartbeat(version, code, throttle_ms=throttle_ms) == expected


@given(st.integers(0, 1), TEXTS, NUMBERS, NUMBERS, st.integers(0, 1_000))
def test_answers_to_plain_heartbeats_of_kip_848_are_written_as_their_schema_does(
    version: int, member_id: str, epoch: int, interval_ms: int, throttle_ms: int
) -> None:
    fields = {
        "error_code": 0,
        "member_id": member_id,
        "member_epoch": epoch,
        "heartbeat_interval": interval_ms,
        "assignment": None,
        "throttle_time": throttle_ms,
    }
    expected = answer_bytes(CONSUMER_HEARTBEAT, version, 1, fields)
    assert (
        encode_plain_heartbeat(member_id, epoch, interval_ms, throttle_ms=throttle_ms) == expected
    )


# --- commits -------------------------------------------------------------------------------------

PARTS = st.builds(
    CommittedPart, st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), NUMBERS, MAYBE_TEXTS
)
TOPICS = st.lists(st.builds(CommittedTopic, TEXTS, st.lists(PARTS, max_size=4)), max_size=4)
COMMITS = st.builds(Commit, TEXTS, NUMBERS, TEXTS, MAYBE_TEXTS, TOPICS)
COMMIT = Commit("g", 1, "m", "s", [CommittedTopic("t", [CommittedPart(3, 7, -1, "note")])])


def commit_bytes(version: int, commit: Commit) -> bytes:
    fields: dict[str, object] = {
        **commit._asdict(),
        "topics": [
            {"name": topic.name, "partitions": [asdict(part) for part in topic.partitions]}
            for topic in commit.topics
        ],
    }
    if version < 7:
        del fields["group_instance_id"]
    return body_of(OFFSET_COMMIT, version, fields)


@given(st.integers(6, 9), COMMITS)
def test_a_commit_is_read_as_its_schema_writes_it(version: int, commit: Commit) -> None:
    if version < 7:
        commit = commit._replace(group_instance_id=None)
    assert read_commit(version, memoryview(commit_bytes(version, commit))) == commit


@pytest.mark.parametrize("version", [2, 5, 10])
def test_commits_of_other_versions_are_left_to_the_schema(version: int) -> None:
    assert read_commit(version, memoryview(b"")) is None


@pytest.mark.parametrize("version", range(6, 10))
@pytest.mark.parametrize("topics", [1, 10, COMMIT_ENTRIES_MAX + 1])
def test_a_commit_of_very_many_partitions_is_left_to_the_schema(version: int, topics: int) -> None:
    """Decoding it would block the loop, and its objects count for the request memory."""
    parts = [CommittedPart(each, 7, -1, "") for each in range(COMMIT_ENTRIES_MAX // topics)]
    large = COMMIT._replace(topics=[CommittedTopic(f"t{each}", parts) for each in range(topics)])
    assert read_commit(version, memoryview(commit_bytes(version, large))) is None


@pytest.mark.parametrize("version", range(6, 10))
def test_a_commit_that_is_cut_short_is_none(version: int) -> None:
    whole = commit_bytes(version, COMMIT)
    for size in range(len(whole)):
        with pytest.raises(InvalidRequest):
            read_commit(version, memoryview(whole[:size]))


@given(st.integers(6, 9), TOPICS, st.sampled_from((0, 3, 22)), st.integers(0, 1_000))
def test_answers_to_commits_are_written_as_their_schema_does(
    version: int, topics: list[CommittedTopic], code: int, throttle_ms: int
) -> None:
    fields = {
        "throttle_time": throttle_ms,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": code}
                    for part in topic.partitions
                ],
            }
            for topic in topics
        ],
    }
    codes = [code] * sum(len(topic.partitions) for topic in topics)
    expected = answer_bytes(OFFSET_COMMIT, version, 9, fields)
    assert encode_commit(version, topics, codes, throttle_ms=throttle_ms) == expected


PLAIN_PARTS = st.builds(
    CommittedPart,
    st.integers(-2, 2**31 - 1),
    st.integers(-2, 2**63 - 1),
    st.integers(-2, 2**31 - 1),
    st.sampled_from(("", "", "", None, "note")),
)
PLAIN_COMMITS = st.builds(
    Commit,
    TEXTS,
    NUMBERS,
    TEXTS,
    MAYBE_TEXTS,
    st.lists(st.builds(CommittedTopic, TEXTS, st.lists(PLAIN_PARTS, max_size=40)), max_size=3),
)


@given(st.integers(6, 9), PLAIN_COMMITS, st.binary(max_size=3))
def test_plain_commit_is_read_and_answered_as_any_commit(
    version: int, commit: Commit, rest: bytes
) -> None:
    body = commit_bytes(version, commit) + rest
    usual = read_commit(version, memoryview(body))
    assert usual is not None
    try:
        plain = read_plain_commit(version, body)
    except (InvalidRequest, IndexError, UnicodeDecodeError, StructError):
        plain = None
    parts = [part for topic in commit.topics for part in topic.partitions]
    if plain is None:
        texts = [commit.group_id, commit.member_id, commit.group_instance_id or ""]
        texts += [topic.name for topic in commit.topics]
        assert (
            any(part.committed_metadata != "" for part in parts)
            or not 0 < len(parts) <= 64
            or not all(topic.partitions for topic in commit.topics)
            or not all((commit.group_id, commit.member_id, *(each.name for each in commit.topics)))
            or any(len(text.encode()) > 126 for text in texts)
        )
        return
    assert plain[:4] == (usual.group_id, usual.member_id, usual.group_instance_id, usual[1])
    for topic, expected in zip(plain.topics, usual.topics, strict=True):
        assert topic == (
            expected.name,
            tuple(part.partition_index for part in expected.partitions),
            tuple(part.committed_offset for part in expected.partitions),
            tuple(part.committed_leader_epoch for part in expected.partitions),
        )
    answer = encode_commit(version, usual.topics, [0] * len(parts), throttle_ms=0)
    assert encode_plain_commit(version, plain.topics) == answer


@given(st.integers(6, 9), PLAIN_COMMITS, st.data())
def test_plain_commit_that_is_cut_short_is_not_read(
    version: int, commit: Commit, data: st.DataObject
) -> None:
    body = commit_bytes(version, commit)
    size = data.draw(st.integers(0, len(body) - 1))
    try:
        plain = read_plain_commit(version, body[:size])
    except (InvalidRequest, IndexError, UnicodeDecodeError, StructError):
        return
    assert plain is None
