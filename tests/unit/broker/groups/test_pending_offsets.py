"""Offsets of open transactions are pending until a marker; the newest record counts."""

import pytest

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.offsets import Offsets
from quorumlog.broker.groups.records import OffsetCommitted, OffsetForgotten
from quorumlog.broker.groups.requests import FetchOffsets
from quorumlog.errors import UnstableOffsetCommit
from quorumlog.ids import TopicId

from .offsets_image import ID, OTHER, image_of

CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_check_ms=100)
IMAGE = image_of({"t": ID})


def offset(
    number: int,
    *,
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    topic_id: TopicId | None = ID,
) -> OffsetCommitted:
    return OffsetCommitted(
        group=group,
        topic=topic,
        partition=partition,
        offset=number,
        commit_ms=50,
        topic_id=topic_id,
    )


def tombstone(partition: int = 0) -> OffsetForgotten:
    return OffsetForgotten(group="g", topic="t", partition=partition)


def loaded(*records: tuple[OffsetCommitted | OffsetForgotten, int | None]) -> Offsets:
    """Load these records, with their producers, in log order."""
    offsets = Offsets(CONFIG)
    for record, producer_id in records:
        offsets.replay(record, producer_id)
        offsets.check_invariants()
    return offsets


def committed(offsets: Offsets, group: str = "g") -> dict[int, int]:
    """Return the committed offset of each partition of `t`."""
    return {each.partition: each.offset for each in offsets.fetch(FetchOffsets(group=group), IMAGE)}


def unstable(offsets: Offsets, *partitions: int) -> list[int]:
    """Return the partitions without a stable offset, by default of all."""
    request = FetchOffsets(
        group="g",
        partitions=tuple(("t", each) for each in partitions) or None,
        require_stable=True,
    )
    found = offsets.fetch(request, IMAGE)
    assert all(
        isinstance(each.error, UnstableOffsetCommit) and each.offset == -1
        for each in found
        if each.error is not None
    )
    return [each.partition for each in found if each.error is not None]


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_applies_or_drops_the_offsets_of_its_producer(is_commit: bool) -> None:
    offsets = loaded(
        (offset(1), None),
        (offset(5), 7),
        (offset(6, partition=1), 7),
        (offset(8, group="h"), 7),
        (offset(9, partition=1), 8),
    )
    assert committed(offsets) == {0: 1}
    assert offsets.end_transaction(7, is_commit=is_commit) == ["g", "h"]
    offsets.check_invariants()
    assert committed(offsets) == ({0: 5, 1: 6} if is_commit else {0: 1})
    assert committed(offsets, "h") == ({0: 8} if is_commit else {})
    assert offsets.has_any("h") == is_commit
    assert offsets.end_transaction(7, is_commit=True) == []
    assert unstable(offsets) == [1]


def test_last_commit_of_a_partition_in_a_transaction_counts() -> None:
    offsets = loaded((offset(5), 7), (offset(3), 7))
    offsets.end_transaction(7, is_commit=True)
    assert committed(offsets) == {0: 3}


def test_offset_committed_after_a_pending_one_stays_in_force() -> None:
    offsets = loaded((offset(5), 7), (offset(3), None))
    assert unstable(offsets, 0) == [0]
    offsets.end_transaction(7, is_commit=True)
    assert committed(offsets) == {0: 3}


def test_pending_offset_behind_the_one_in_force_applies() -> None:
    offsets = loaded((offset(5), 7), (offset(3), None), (offset(4), 7))
    offsets.end_transaction(7, is_commit=True)
    assert committed(offsets) == {0: 4}


@pytest.mark.parametrize("first", [7, 8])
def test_newest_record_of_two_transactions_counts_in_either_order_of_markers(first: int) -> None:
    offsets = loaded((offset(5), 7), (offset(6), 8))
    offsets.end_transaction(first, is_commit=True)
    offsets.check_invariants()
    offsets.end_transaction(15 - first, is_commit=True)
    assert committed(offsets) == {0: 6}


def test_aborted_transaction_supersedes_nothing() -> None:
    offsets = loaded((offset(5), 7), (offset(6), 8))
    offsets.end_transaction(8, is_commit=False)
    offsets.end_transaction(7, is_commit=True)
    assert committed(offsets) == {0: 5}


def test_stable_fetch_returns_errors_per_partition_in_request_order() -> None:
    offsets = loaded((offset(1), None), (offset(2, partition=1), None), (offset(5), 7))
    wanted = (("t", 1), ("t", 0), ("none", 0))
    request = FetchOffsets(group="g", partitions=wanted, require_stable=True)
    found = offsets.fetch(request, IMAGE)
    assert [(each.topic, each.partition, each.offset) for each in found] == [
        ("t", 1, 2),
        ("t", 0, -1),
        ("none", 0, -1),
    ]
    assert [each.error is None for each in found] == [True, False, True]
    assert unstable(offsets) == [0]


def test_stable_fetch_of_all_includes_partitions_with_only_a_pending_offset() -> None:
    offsets = loaded((offset(2, partition=1), None), (offset(5), 7))
    assert unstable(offsets) == [0]
    assert committed(offsets) == {1: 2}


def test_pending_offset_of_a_deleted_topic_does_not_make_its_successor_unstable() -> None:
    offsets = loaded((offset(5, topic_id=OTHER), 7))
    assert unstable(offsets, 0) == []
    assert unstable(offsets) == []


def test_deletion_of_an_offset_drops_the_pending_ones() -> None:
    offsets = loaded((offset(1), None), (offset(5), 7), (offset(6), 8), (offset(2, partition=1), 7))
    assert offsets.forget("g", "t", 0) == [tombstone()]
    assert offsets.forget("g", "t", 1) == [tombstone(1)]
    assert offsets.forget("g", "t", 0) == []
    assert not offsets.has_any("g")
    offsets.end_transaction(7, is_commit=True)
    offsets.check_invariants()
    assert committed(offsets) == {}


def test_commit_after_a_deletion_in_the_same_transaction_applies() -> None:
    offsets = loaded((offset(5), 7), (tombstone(), None), (offset(6), 7))
    offsets.end_transaction(7, is_commit=True)
    assert committed(offsets) == {0: 6}


def test_deletion_of_a_group_has_one_tombstone_for_each_partition() -> None:
    offsets = loaded((offset(1), None), (offset(5), 7), (offset(6, partition=1), 7))
    assert offsets.forget_group("g") == [tombstone(), tombstone(1)]
    offsets.check_invariants()
    assert not offsets.has_any("g")


def test_deletion_of_a_topic_drops_pending_offsets_of_it_alone() -> None:
    offsets = loaded((offset(1), None), (offset(5, partition=1), 7), (offset(8, topic="u"), 7))
    assert offsets.forget_topic("t", ID) == [tombstone(), tombstone(1)]
    offsets.check_invariants()
    assert list(offsets.groups()) == ["g"]
    offsets.end_transaction(7, is_commit=True)
    found = offsets.fetch(FetchOffsets(group="g"), image_of({"u": ID}))
    assert [(each.topic, each.offset) for each in found] == [("u", 8)]


def test_deletion_of_a_topic_keeps_pending_offsets_of_its_successor() -> None:
    offsets = loaded((offset(1, topic_id=OTHER), None), (offset(5), 7))
    assert offsets.forget_topic("t", OTHER) == []
    assert committed(offsets) == {}
    offsets.end_transaction(7, is_commit=True)
    assert committed(offsets) == {0: 5}


def test_offset_does_not_expire_while_another_is_pending() -> None:
    offsets = loaded((offset(1), None), (offset(2, partition=1), None), (offset(5), 7))
    expired = offsets.expired(
        "g", IMAGE, 60_050, since=lambda kept: kept.commit_ms, subscribed=frozenset()
    )
    assert expired == [tombstone(1)]
    offsets.end_transaction(7, is_commit=False)
    assert committed(offsets) == {0: 1}


def test_group_with_only_pending_offsets_has_some() -> None:
    offsets = loaded((offset(5), 7))
    assert offsets.has_any("g")
    assert list(offsets.groups()) == ["g"]
    assert (len(offsets), offsets.count_of("g")) == (0, 0)
