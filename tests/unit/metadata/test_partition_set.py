"""A set of partitions equals a plain set, and the image's index equals a full scan."""

from hypothesis import given
from hypothesis import strategies as st

from quorumlog.ids import TopicId
from quorumlog.metadata.partition_set import NO_PARTITIONS, PartitionSet

IDS = [TopicId(bytes([first]) + bytes([last]) * 15) for first in (0, 7, 255) for last in (0, 1)]
PARTITIONS = st.tuples(st.sampled_from(IDS), st.integers(min_value=0, max_value=70))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "discard", "discard_topic"]), PARTITIONS))


@given(STEPS)
def test_set_equals_a_plain_set_and_iterates_in_order(
    steps: list[tuple[str, tuple[TopicId, int]]],
) -> None:
    model: set[tuple[TopicId, int]] = set()
    ours = NO_PARTITIONS
    for name, (topic_id, index) in steps:
        if name == "add":
            ours = ours.add(topic_id, index)
            model.add((topic_id, index))
        elif name == "discard":
            ours = ours.discard(topic_id, index)
            model.discard((topic_id, index))
        else:
            ours = ours.with_bits({topic_id: 0})
            model = {each for each in model if each[0] != topic_id}
    assert list(ours) == sorted(model)
    assert len(ours) == len(model)
    assert bool(ours) == bool(model)
    for topic_id in IDS:
        assert list(ours.of_topic(topic_id)) == sorted(i for t, i in model if t == topic_id)
        assert all(((topic_id, index) in ours) == ((topic_id, index) in model) for index in (0, 70))


def test_emptied_set_is_the_empty_set_and_a_no_op_returns_the_same_set() -> None:
    one = NO_PARTITIONS.add(IDS[0], 3)
    assert one.discard(IDS[0], 3) == NO_PARTITIONS
    assert one.add(IDS[0], 3) is one
    assert one.discard(IDS[1], 3) is one
    assert isinstance(one, PartitionSet)
