"""Sorting of topic ids in steps: sorting a hundred thousand ids at once would delay heartbeats."""

from collections.abc import Iterable, Iterator
from typing import Final

from ..ids import TopicId

IDS_A_STEP: Final = 5_000
"""The number of ids that one step distributes to buckets."""


def sorted_in_steps(topic_ids: Iterable[TopicId]) -> Iterator[TopicId | None]:
    """Yield the ids in ascending order, and None at the end of a step.

    Ids are random, so that buckets by the first byte have similar sizes. Each bucket is sorted when
    it is reached.
    """
    buckets: list[list[TopicId]] = [[] for _ in range(256)]
    for count, topic_id in enumerate(topic_ids, 1):
        buckets[topic_id[0]].append(topic_id)
        if count % IDS_A_STEP == 0:
            yield None
    for bucket in buckets:
        bucket.sort()
        yield from bucket
