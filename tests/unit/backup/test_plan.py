"""Decisions of backups and restores."""

import re
from typing import Any

import pytest
from tests.unit.backup.samples import BACKUP, manifest, stored, topic

from quorumlog.backup.manifest import StoredRange, range_path
from quorumlog.backup.plan import (
    SPAN_MAX,
    SPANS_MAX,
    RestoreAction,
    TopicNames,
    TopicRestore,
    gap_spans,
    is_unreferenced,
    plan_restore,
    referenced_paths,
    restore_mark,
    reusable_ranges,
)
from quorumlog.clients.admin.descriptions import Partition, Topic
from quorumlog.errors import BackupDamaged, InvalidConfig, InvalidRequest, TopicAlreadyExists

ALL = re.compile(".*")


def reused(
    proven: list[StoredRange], listed: list[StoredRange], start: int, end: int
) -> list[tuple[int, int, bool]]:
    found = reusable_ranges(proven, listed, start=start, end=end)
    return [(each.stored.first, each.stored.end, each.is_proven) for each in found]


def test_objects_of_the_newest_backup_are_reused_before_others() -> None:
    proven = [stored(0, 10), stored(10, 20)]
    listed = [*proven, stored(20, 35), stored(20, 30), stored(35, 40), stored(0, 20)]
    assert reused(proven, listed, 0, 40) == [
        (0, 10, True),
        (10, 20, True),
        (20, 35, False),
        (35, 40, False),
    ]
    assert reused(proven, listed, 0, 38) == [(0, 10, True), (10, 20, True), (20, 35, False)]


def test_objects_below_the_start_are_dropped_and_one_may_begin_before_it() -> None:
    proven = [stored(0, 10), stored(10, 20), stored(20, 30)]
    assert reused(proven, proven, 15, 30) == [(10, 20, True), (20, 30, True)]
    assert reused([], proven, 15, 30) == [(10, 20, False), (20, 30, False)]
    assert reused([], [stored(20, 30)], 15, 30) == []


def test_a_missing_object_ends_the_chain() -> None:
    proven = [stored(0, 10), stored(10, 20), stored(20, 30)]
    assert reused(proven, [proven[0], proven[2]], 0, 30) == [(0, 10, True)]


def test_objects_that_reach_beyond_the_end_are_not_reused() -> None:
    """They may have records that the source has lost since."""
    assert reused([stored(0, 10)], [stored(0, 10)], 0, 9) == []


def test_two_objects_of_equal_offsets_and_other_content_are_not_reused() -> None:
    one, other = stored(0, 10, crc=1), stored(0, 10, crc=2)
    assert reused([], [one, other], 0, 10) == []
    assert reused([one], [one, other], 0, 10) == [(0, 10, True)]


def test_only_data_objects_without_a_backup_are_garbage() -> None:
    kept = topic("orders", 1, stored(0, 10))
    referenced = referenced_paths(manifest(kept))
    path = range_path(kept.id, 0, stored(0, 10))
    assert not is_unreferenced(path, referenced)
    assert is_unreferenced(range_path(kept.id, 0, stored(10, 20)), referenced)
    assert not is_unreferenced("data/notes.txt", referenced)
    assert not is_unreferenced(path.replace("data/", "data/../"), referenced)


def present(name: str, partitions: int = 1, **configs: str) -> dict[str, Topic]:
    return {
        name: Topic(
            name=name,
            topic_id=bytes(16),
            partitions=tuple(
                Partition(
                    partition=index,
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    replicas=(1,),
                    isr=(1,),
                    min_isr=1,
                    elr=(),
                    last_known_elr=(),
                    adding=(),
                    removing=(),
                    recovering=False,
                )
                for index in range(partitions)
            ),
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
    }


def plans(existing: dict[str, Topic], **options: Any) -> list[TopicRestore]:
    found = manifest(topic("orders", 1, stored(0, 10)), topic("users", 2))
    options = {"pattern": ALL, "names": TopicNames(), "resumes": False, **options}
    return plan_restore(found, existing, **options)


def test_topics_are_created_with_configs_that_keep_their_records() -> None:
    (orders, users) = plans({}, replication=1, configs={"retention.ms": "5"})
    assert [each.action for each in (orders, users)] == [RestoreAction.CREATE] * 2
    assert orders.first_configs["retention.ms"] == "-1"
    assert orders.first_configs["mirror.source"] == restore_mark(BACKUP, orders.topic)
    kept, dropped = orders.last_changes
    assert kept == {"retention.ms": "5"}
    assert set(dropped) == {"cleanup.policy", "retention.bytes", "mirror.source"}
    assert orders.is_min_isr_lowered
    assert "min.insync.replicas" not in orders.configs


def test_an_existing_topic_is_refused_with_the_remedy() -> None:
    with pytest.raises(TopicAlreadyExists, match="nothing was restored: orders exists; give"):
        plans(present("orders"))
    mark = restore_mark(BACKUP, topic("orders", 1))
    with pytest.raises(TopicAlreadyExists, match=f"orders is half restored from backup {BACKUP}"):
        plans(present("orders", mirror_source=mark))


def test_resume_continues_a_topic_of_this_backup_only() -> None:
    mark = restore_mark(BACKUP, topic("orders", 1))
    actions = [each.action for each in plans(present("orders", mirror_source=mark), resumes=True)]
    assert actions == [RestoreAction.CONTINUE, RestoreAction.CREATE]
    (first, _) = plans(present("orders"), resumes=True)
    assert first.action is RestoreAction.COMPARE
    with pytest.raises(TopicAlreadyExists, match="orders mirrors backup:another/x"):
        plans(present("orders", mirror_source="backup:another/x"), resumes=True)
    with pytest.raises(TopicAlreadyExists, match="orders has 2 partitions, in the backup 1"):
        plans(present("orders", 2, mirror_source=mark), resumes=True)


def test_names_are_mapped_and_checked() -> None:
    assert [each.name for each in plans({}, names=TopicNames(prefix="old."))] == [
        "old.orders",
        "old.users",
    ]
    (first, second) = plans({}, names=TopicNames(renamed={"orders": "users2"}))
    assert (first.name, second.name) == ("users2", "users")
    with pytest.raises(InvalidRequest, match="both be restored as users"):
        plans({}, names=TopicNames(renamed={"orders": "users"}))
    with pytest.raises(InvalidRequest, match="2 topics match"):
        plans({}, names=TopicNames(single="x"))
    with pytest.raises(InvalidRequest, match="no such topic"):
        plans({}, names=TopicNames(renamed={"nothing": "x"}))
    with pytest.raises(InvalidRequest, match="is not a topic name"):
        plans({}, names=TopicNames(prefix="__"))
    with pytest.raises(InvalidConfig, match="cannot set it"):
        plans({}, configs={"mirror.source": "x"})


def test_gaps_are_filled_up_to_a_bound() -> None:
    assert gap_spans(5, 5) == []
    assert gap_spans(5, 9) == [(5, 9)]
    assert gap_spans(0, SPAN_MAX + 1) == [(0, SPAN_MAX), (SPAN_MAX, SPAN_MAX + 1)]
    with pytest.raises(BackupDamaged, match="have no records"):
        gap_spans(0, SPAN_MAX * SPANS_MAX + 1)
