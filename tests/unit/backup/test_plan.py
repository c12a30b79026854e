"""Decisions of backups and restores."""

import re
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.backup.samples import BACKUP, group, manifest, stored, topic

from quorumlog.backup.manifest import (
    BackupPartition,
    StoredRange,
    backup_of_path,
    encode_manifest,
    range_path,
)
from quorumlog.backup.partition_restore import chunks_from
from quorumlog.backup.plan import (
    END_MAX,
    RestoreAction,
    TopicNames,
    TopicRestore,
    is_unreferenced,
    plan_restore,
    referenced_paths,
    restore_mark,
    reusable_ranges,
)
from quorumlog.backup.restore import KEYS_A_CALL, key_calls
from quorumlog.clients.admin.descriptions import Partition, Topic
from quorumlog.clients.admin.security import UserKeys
from quorumlog.errors import BackupDamaged, InvalidConfig, InvalidRequest, TopicAlreadyExists
from quorumlog.records.batch import BATCHES_MAX, CONTROL_BIT, TRANSACTIONAL_BIT, without_records

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


def test_objects_below_the_start_are_dropped_and_one_may_span_it() -> None:
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
    assert kept == orders.configs
    assert orders.configs == {"retention.ms": "5"}
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


def test_offsets_that_no_restored_log_can_have_are_refused() -> None:
    def plan(end: int) -> list[TopicRestore]:
        large = replace(topic("orders"), partitions=[BackupPartition(0, end, [])])
        return plan_restore(manifest(large), {}, pattern=ALL, names=TopicNames(), resumes=False)

    assert len(plan(END_MAX)) == 1
    with pytest.raises(BackupDamaged, match="orders-0: it ends"):
        plan(END_MAX + 1)


def test_only_the_exact_paths_of_manifests_and_marks_are_backups() -> None:
    for folder in ("manifests", "running"):
        assert backup_of_path(f"{folder}/{BACKUP}.json") == BACKUP
    for stray in (
        f"manifests/sub/{BACKUP}.json",
        f"manifests/{BACKUP}",
        f"manifests/{BACKUP}.json\n",
        f"data/{BACKUP}.json",
    ):
        assert backup_of_path(stray) is None


def test_a_manifest_that_no_restore_reads_is_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match=r"limit of backups.*groups"):
        encode_manifest(manifest(groups=(group("", "orders", 0, 1),)))


def test_all_keys_of_a_user_are_in_one_call() -> None:
    keys = [
        UserKeys(
            user=f"user{number}",
            mechanism=mechanism,
            salt=b"s",
            iterations=4096,
            stored_key=bytes(32),
            server_key=bytes(32),
        )
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for number in range(KEYS_A_CALL)
    ]
    calls = key_calls(keys[1:])  # an odd number: includes a user of one mechanism
    assert sum(map(len, calls)) == len(keys) - 1
    assert max(map(len, calls)) <= KEYS_A_CALL
    users = [{each.user for each in call} for call in calls]
    assert sum(map(len, users)) == len(set().union(*users))
    assert key_calls([]) == []


def test_chunks_have_a_bounded_number_of_batches() -> None:
    count = 2 * BATCHES_MAX + 1
    content = b"".join(without_records(at, at + 1) for at in range(count))
    chunks = list(chunks_from(content, stored(0, count), 3))
    assert [end for _, end in chunks] == [BATCHES_MAX + 3, count]
    assert b"".join(chunk for chunk, _ in chunks) == content[3 * len(without_records(0, 1)) :]


def test_hostile_objects_are_refused() -> None:
    """The content matches the checksum of its manifest."""
    whole = stored(0, 10)
    batch = without_records(2, 6)
    assert [end for _, end in chunks_from(batch, whole, 0)] == [6]
    assert [end for _, end in chunks_from(batch, whole, 2)] == [6]
    for bit in (CONTROL_BIT, TRANSACTIONAL_BIT):
        with pytest.raises(BackupDamaged, match="out of place"):
            list(chunks_from(with_attribute(batch, bit), whole, 0))
    for content in (without_records(2, 11), batch + batch, without_records(6, 8) + batch):
        with pytest.raises(BackupDamaged, match="out of place"):
            list(chunks_from(content, whole, 0))
    with pytest.raises(BackupDamaged, match="out of place"):
        list(chunks_from(batch, stored(3, 10), 3))
    with pytest.raises(BackupDamaged, match="offset 4 is inside of a batch"):
        list(chunks_from(batch, whole, 4))
    with pytest.raises(BackupDamaged, match="malformed"):
        list(chunks_from(batch[:-1], whole, 0))


def with_attribute(batch: bytes, bit: int) -> bytes:
    """Return a batch with another attribute bit and an outdated CRC."""
    found = bytearray(batch)
    found[22] |= bit
    return bytes(found)
