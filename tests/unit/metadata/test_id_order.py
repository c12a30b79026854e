"""Ids in sorted order, in steps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.ids import TopicId
from quorumlog.metadata.image import IDS_A_STEP, sorted_in_steps


@given(st.lists(st.binary(min_size=16, max_size=16), unique=True))
@settings(max_examples=50, deadline=None)
def test_every_id_is_yielded_once_in_order(ids: list[bytes]) -> None:
    found = [each for each in sorted_in_steps(TopicId(each) for each in ids) if each is not None]
    assert found == sorted(ids)


def test_sort_of_very_many_ids_yields_the_loop_before_the_first_id() -> None:
    ids = [TopicId(number.to_bytes(16)) for number in range(3 * IDS_A_STEP)]
    order = sorted_in_steps(reversed(ids))
    assert [next(order) for _ in range(3)] == [None] * 3
    assert next(order) == ids[0]
