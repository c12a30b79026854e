"""The encoding of subscriptions and assignments of classic consumers, compared with kio's
schemas."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3 import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as Assigned
from kio.schema.consumer_protocol_subscription.v3 import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v3.data import TopicPartition as Owned
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from quorumlog.broker.groups.consumer_protocol import (
    ENTRIES_MAX,
    TOPICS_MAX,
    ConsumerAssignment,
    ConsumerSubscription,
    EntryBudget,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    topics_of,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 99), max_size=3).map(tuple), max_size=3)


@given(
    st.builds(
        ConsumerSubscription,
        version=st.just(3),
        topics=st.lists(NAMES, max_size=4).map(tuple),
        user_data=st.none() | st.binary(max_size=5),
        owned=PARTITIONS,
        generation=st.integers(-1, 9),
        rack=st.none() | NAMES,
    )
)
def test_subscription_round_trip(subscription: ConsumerSubscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@pytest.mark.parametrize("version", range(4))
def test_older_version_keeps_only_its_own_fields(version: int) -> None:
    whole = ConsumerSubscription(
        version=version, topics=("t",), owned={"t": (1,)}, generation=4, rack="r"
    )
    read = decode_subscription(encode_subscription(whole))
    assert (read.version, read.topics) == (version, ("t",))
    assert bool(read.owned) == (version >= 1)
    assert (read.generation, read.rack) == (
        4 if version >= 2 else -1,
        "r" if version >= 3 else None,
    )


def test_future_version_is_read_as_the_last_known_one() -> None:
    data = encode_subscription(ConsumerSubscription(version=3, topics=("t",), rack="r"))
    read = decode_subscription(b"\x00\x09" + data[2:] + b"more")
    assert (read.version, read.rack) == (9, "r")


@given(PARTITIONS, st.none() | st.binary(max_size=5))
def test_an_assignment_is_read_again(
    partitions: dict[str, tuple[int, ...]], user_data: bytes | None
) -> None:
    whole = ConsumerAssignment(version=1, partitions=partitions, user_data=user_data)
    assert decode_assignment(encode_assignment(whole)) == whole


def test_no_bytes_are_no_assignment() -> None:
    assert decode_assignment(b"").partitions == {}


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ValueError:
            continue


def test_cut_bytes_are_refused() -> None:
    data = encode_subscription(ConsumerSubscription(version=3, topics=("t",), owned={"t": (1,)}))
    for end in range(len(data)):
        with pytest.raises(ValueError):  # noqa: PT011
            decode_subscription(data[:end])


def owned_entries(count: int) -> bytes:
    """Return a subscription that owns one partition of one topic in so many entries."""
    once = b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\7"
    return b"\0\1" + b"\0\0\0\0" + b"\xff" * 4 + count.to_bytes(4, "big") + count * once


def test_entries_of_the_same_owned_topic_are_merged_up_to_a_limit() -> None:
    found = decode_subscription(owned_entries(TOPICS_MAX))
    assert found.owned == {"t": (7,) * TOPICS_MAX}
    with pytest.raises(ValueError, match="10001 elements; the limit is 10000"):
        decode_subscription(owned_entries(TOPICS_MAX + 1))


def test_number_of_entries_is_limited() -> None:
    topics = tuple(f"t{number}" for number in range(TOPICS_MAX + 1))
    most = ConsumerSubscription(version=1, topics=topics[1:])
    more = ConsumerSubscription(version=1, topics=topics)
    assert decode_subscription(encode_subscription(most)) == most
    assert topics_of(encode_subscription(most)) == frozenset(topics[1:])
    with pytest.raises(ValueError, match="10001 elements; the limit is 10000"):
        decode_subscription(encode_subscription(more))
    assert topics_of(encode_subscription(more)) is None
    parts = ConsumerAssignment(version=1, partitions={"t": tuple(range(ENTRIES_MAX))})
    with pytest.raises(ValueError, match="too many topics and partitions"):
        decode_assignment(encode_assignment(parts))


def test_budget_is_that_of_several_decodings() -> None:
    data = encode_subscription(ConsumerSubscription(version=1, topics=("t",), owned={"t": (1,)}))
    budget = EntryBudget(5)
    decode_subscription(data, budget)  # takes 3
    assert topics_of(data, budget) == frozenset({"t"})
    assert topics_of(data, budget) == frozenset({"t"})
    assert topics_of(data, budget) is None
    with pytest.raises(ValueError, match="1 more than 0 left"):
        decode_subscription(data, budget)


def test_an_assignment_has_the_bytes_of_kafkas_schema() -> None:
    sink = BytesIO()
    entity_writer(ConsumerProtocolAssignment)(
        sink,
        ConsumerProtocolAssignment(
            assigned_partitions=(
                Assigned(topic=TopicName("t"), partitions=(i32(0), i32(7))),
                Assigned(topic=TopicName("u"), partitions=()),
            ),
            user_data=b"x",
        ),
    )
    ours = ConsumerAssignment(version=3, partitions={"t": (0, 7), "u": ()}, user_data=b"x")
    assert encode_assignment(ours) == b"\x00\x03" + sink.getvalue()


def test_a_subscription_has_the_bytes_of_kafkas_schema() -> None:
    sink = BytesIO()
    entity_writer(ConsumerProtocolSubscription)(
        sink,
        ConsumerProtocolSubscription(
            topics=("t", "u"),
            user_data=None,
            owned_partitions=(Owned(topic=TopicName("t"), partitions=(i32(3),)),),
            generation_id=i32(5),
            rack_id="r",
        ),
    )
    ours = ConsumerSubscription(
        version=3, topics=("t", "u"), owned={"t": (3,)}, generation=5, rack="r"
    )
    assert encode_subscription(ours) == b"\x00\x03" + sink.getvalue()
