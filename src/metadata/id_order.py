"""Topic ids in ascending order, found in steps: sorting a hundred thousand at once takes as long as
a heartbeat may."""

from collections.abc import Iterable, Iterator
from typing import Final

from ..ids import TopicId

IDS_A_STEP: Final = 5_000
"""Ids that are put into their buckets in one step."""


def in_order(topic_ids: Iterable[TopicId]) -> Iterator[TopicId | None]:
    """Yield each id by ascending order; None: this may be the end of a step, nothing else.

    Buckets by the first byte, each sorted when its turn comes: ids are drawn, so they are as large.
    """
    buckets: list[list[TopicId]] = [[] for _ in range(256)]
    for count, topic_id in enumerate(topic_ids, 1):
        buckets[topic_id[0]].append(topic_id)
        if count % IDS_A_STEP == 0:
            yield None
    for bucket in buckets:
        bucket.sort()
        yield from bucket
