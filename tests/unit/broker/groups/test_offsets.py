"""Committed offsets: commit, fetch, expiry and deletion."""

import pytest

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.formats import decode, encode
from quorumlog.broker.groups.offsets import OffsetEntry, Offsets
from quorumlog.broker.groups.records import OffsetCommitted, OffsetForgotten
from quorumlog.broker.groups.requests import CommitOffsets, FetchOffsets, OffsetToCommit
from quorumlog.errors import (
    OffsetNoteTooLarge,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicId
from quorumlog.metadata import MetadataImage

from .offsets_image import ID, OTHER, image_of

CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_check_ms=100, note_bytes_max=8)


IMAGE = image_of({"t": ID})


def commit_of(
    offset: int, partition: int = 0, *, topic: str = "t", note: str = "", retention_ms: int = -1
) -> CommitOffsets:
    each = OffsetToCommit(topic=topic, partition=partition, offset=offset, note=note)
    return CommitOffsets(group="g", offsets=(each,), retention_ms=retention_ms)


def offsets_of(offsets: Offsets, image: MetadataImage = IMAGE) -> dict[tuple[str, int], int]:
    found = offsets.fetch(FetchOffsets(group="g"), image)
    return {(each.topic, each.partition): each.offset for each in found}


def test_fetch_returns_the_last_commit_of_a_partition() -> None:
    offsets = Offsets(CONFIG)
    for offset in (3, 9, 4):
        records, errors = offsets.commit(commit_of(offset), IMAGE, 50)
        assert errors == (None,)
        assert [(each.offset, each.commit_ms, each.topic_id) for each in records] == [
            (offset, 50, ID)
        ]
    assert offsets_of(offsets) == {("t", 0): 4}
    assert len(offsets) == 1


def test_fetch_returns_minus_one_without_a_commit_in_request_order() -> None:
    offsets = Offsets(CONFIG)
    offsets.commit(commit_of(4, 1, note="n"), IMAGE, 50)
    wanted = (("no", 0), ("t", 1), ("t", 0))
    found = offsets.fetch(FetchOffsets(group="g", partitions=wanted), IMAGE)
    assert [(each.topic, each.partition, each.offset, each.note) for each in found] == [
        ("no", 0, -1, ""),
        ("t", 1, 4, "n"),
        ("t", 0, -1, ""),
    ]
    assert offsets.fetch(FetchOffsets(group="none"), IMAGE) == ()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (OffsetToCommit(topic="t", partition=0, offset=1, note="ninebytes"), OffsetNoteTooLarge),
        (OffsetToCommit(topic="t", partition=0, offset=1, note="äöüäö"), OffsetNoteTooLarge),
        (OffsetToCommit(topic="t", partition=2, offset=1), UnknownTopicOrPartition),
        (OffsetToCommit(topic="u", partition=0, offset=1), UnknownTopicOrPartition),
        (OffsetToCommit(topic="t", partition=0, offset=1, topic_id=OTHER), UnknownTopicId),
    ],
)
def test_a_bad_offset_is_refused_by_itself(
    bad: OffsetToCommit, error: type[QuorumlogError]
) -> None:
    offsets = Offsets(CONFIG)
    good = OffsetToCommit(topic="t", partition=1, offset=7, topic_id=ID)
    request = CommitOffsets(group="g", offsets=(bad, good))
    records, errors = offsets.commit(request, IMAGE, 50)
    assert isinstance(errors[0], error)
    assert errors[1] is None
    assert [each.offset for each in records] == [7]
    assert offsets_of(offsets) == {("t", 1): 7}


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
def test_a_negative_offset_is_stored_and_returned(offset: int) -> None:
    offsets = Offsets(CONFIG)
    ((record,), errors) = offsets.commit(commit_of(offset, note="n"), IMAGE, 50)
    assert errors == (None,)
    assert decode(*encode(record)) == record
    (found,) = offsets.fetch(FetchOffsets(group="g", partitions=(("t", 0),)), IMAGE)
    assert (found.offset, found.note, found.error) == (offset, "n", None)


def test_recreated_topic_does_not_get_the_offsets_of_the_old_one() -> None:
    offsets = Offsets(CONFIG)
    offsets.commit(commit_of(4), IMAGE, 50)
    anew = image_of({"t": OTHER})
    assert offsets_of(offsets, anew) == {}
    one = FetchOffsets(group="g", partitions=(("t", 0),))
    assert offsets.fetch(one, anew)[0].offset == -1
    offsets.commit(commit_of(2), anew, 60)
    assert offsets_of(offsets, anew) == {("t", 0): 2}


def test_deleted_topic_removes_only_its_own_offsets() -> None:
    offsets = Offsets(CONFIG)
    image = image_of({"t": ID, "u": OTHER})
    offsets.commit(commit_of(4), image, 50)
    offsets.commit(commit_of(5, topic="u"), image, 50)
    gone = offsets.forget_topic("t", ID)
    assert gone == [OffsetForgotten(group="g", topic="t", partition=0)]
    assert offsets_of(offsets, image) == {("u", 0): 5}
    assert len(offsets) == 1
    assert offsets.forget_topic("u", ID) == []


def expired(
    offsets: Offsets,
    now_ms: int,
    *,
    image: MetadataImage = IMAGE,
    subscribed: frozenset[str] = frozenset(),
) -> list[OffsetForgotten]:
    return offsets.expired(
        "g", image, now_ms, since=lambda kept: kept.commit_ms, subscribed=subscribed
    )


def test_offset_expires_after_its_retention() -> None:
    offsets = Offsets(CONFIG)
    offsets.commit(commit_of(4), IMAGE, 50)
    assert expired(offsets, 60_049) == []
    assert expired(offsets, 60_050, subscribed=frozenset({"t"})) == []
    assert expired(offsets, 60_050) == [OffsetForgotten(group="g", topic="t", partition=0)]
    assert not offsets.has_any("g")


def test_a_commit_of_old_clients_brings_its_own_retention() -> None:
    offsets = Offsets(CONFIG)
    (record,), _ = offsets.commit(commit_of(4, retention_ms=10), IMAGE, 50)
    assert record.expire_ms == 60
    assert expired(offsets, 59) == []
    assert len(expired(offsets, 60)) == 1


def test_offsets_of_a_deleted_topic_expire_even_if_in_use() -> None:
    offsets = Offsets(CONFIG)
    offsets.commit(commit_of(4), IMAGE, 50)
    without = image_of({})
    kept = offsets.expired("g", without, 149, since=None, subscribed=frozenset({"t"}))
    assert kept == []  # the committing client may have newer metadata than this broker
    gone = offsets.expired("g", without, 150, since=None, subscribed=frozenset({"t"}))
    assert len(gone) == 1


def test_stored_offsets_are_loaded() -> None:
    offsets = Offsets(CONFIG)
    record = OffsetCommitted(group="g", topic="t", partition=0, offset=4, commit_ms=9)
    offsets.replay(record)
    assert offsets_of(offsets) == {("t", 0): 4}
    tombstone = OffsetForgotten(group="g", topic="t", partition=0)
    offsets.replay(tombstone)
    offsets.replay(tombstone)
    assert offsets_of(offsets) == {}
    assert len(offsets) == 0


def test_a_forgotten_group_leaves_nothing() -> None:
    offsets = Offsets(CONFIG)
    for partition in (0, 1):
        offsets.commit(commit_of(4, partition), IMAGE, 50)
    assert offsets.count_of("g") == 2
    assert len(offsets.forget_group("g")) == 2
    assert (offsets.count_of("g"), len(offsets), offsets.groups()) == (0, 0, {})
    assert offsets.forget("g", "t", 0) == []


def test_topic_ids_are_kept_once() -> None:
    offsets = Offsets(CONFIG)
    for partition in (0, 1):
        offsets.replay(
            OffsetCommitted(
                group="g",
                topic="t",
                partition=partition,
                offset=1,
                commit_ms=1,
                topic_id=TopicId(bytes(list(ID))),
            )
        )
    found: list[OffsetEntry] = list(offsets._groups["g"]["t"].values())
    assert found[0].topic_id is found[1].topic_id
