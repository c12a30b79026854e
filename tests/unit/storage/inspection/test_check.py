"""Findings of a check in directories that are intact, torn, damaged or in use."""

from collections.abc import Callable

import pytest

from quorumlog.errors import InvalidRequest
from quorumlog.ids import DirectoryId, NodeId, TopicId
from quorumlog.records.batch import HEADER_SIZE
from quorumlog.storage.inspect.directory_check import KnownMetadata, KnownTopic, check
from quorumlog.storage.inspect.findings import CheckReport, FindingKind

from .conftest import COMPACTED, DATA, ONE, TOPIC, Contents, Tree

Plant = Callable[[Contents], Tree]

LAST = f"{DATA}/t-0/00000000000000000012.log"
MIDDLE = f"{DATA}/t-0/00000000000000000007.log"
POINTS = f"{DATA}/recovery-point-offset-checkpoint"


def kinds(report: CheckReport) -> list[FindingKind]:
    return [finding.kind for finding in report.all_findings()]


def damage(content: bytes, position: int) -> bytes:
    """Flip one byte."""
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


def lowered(contents: Contents, point: int) -> Contents:
    """Lower the recovery point of t-0 to `point`, as if only that much was fsynced."""
    return contents | {POINTS: b"0\n2\nc 0 31\nt 0 %d\n" % point}


def test_an_intact_directory_is_ok_and_counted(plant: Plant, closed_contents: Contents) -> None:
    tree = plant(closed_contents)
    report = check(tree.files, tree.path)
    assert report.is_ok
    assert report.is_clean
    assert kinds(report) == []
    counted = {log.name: (log.segments, log.batches, log.records) for log in report.logs}
    assert counted == {"c-0": (2, 4, 8), "t-0": (3, 10, 15)}
    assert {log.name: log.log_end_offset for log in report.logs} == {"c-0": 31, "t-0": 15}


def test_after_a_kill_an_intact_directory_is_ok_and_not_clean(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(killed_contents)
    report = check(tree.files, tree.path)
    assert report.is_ok
    assert report.is_clean is False
    assert kinds(report) == []


def test_check_changes_no_file(plant: Plant, killed_contents: Contents) -> None:
    tree = plant(killed_contents | {f"{DATA}/t-0/leader-epoch-checkpoint.tmp": b"0"})
    before = tree.all_contents()
    check(tree.files, tree.path)
    assert tree.all_contents() == before


def test_a_torn_tail_above_the_recovery_point_is_a_note(
    plant: Plant, killed_contents: Contents
) -> None:
    torn = lowered(killed_contents, 12) | {LAST: killed_contents[LAST][:-5]}
    tree = plant(torn)
    report = check(tree.files, tree.path)
    assert report.is_ok
    assert kinds(report) == [FindingKind.TORN_TAIL]
    (finding,) = report.all_findings()
    assert finding.file == LAST
    assert finding.offset == report.logs[1].log_end_offset == 13


def test_a_bad_batch_below_the_recovery_point_is_a_problem_that_names_what_is_lost(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(killed_contents | {MIDDLE: damage(killed_contents[MIDDLE], HEADER_SIZE + 3)})
    report = check(tree.files, tree.path)
    assert not report.is_ok
    (finding,) = report.logs[1].findings
    assert finding.kind is FindingKind.BATCH_DAMAGED
    assert (finding.file, finding.position, finding.offset) == (MIDDLE, 0, 7)
    assert "offsets [7, 9) are lost with it" in finding.what
    assert "--cut-damage" in finding.remedy


def test_after_a_clean_stop_no_tail_is_torn(plant: Plant, closed_contents: Contents) -> None:
    tree = plant(closed_contents | {LAST: closed_contents[LAST][:-5]})
    report = check(tree.files, tree.path)
    assert FindingKind.BATCH_DAMAGED in kinds(report)
    assert FindingKind.TORN_TAIL not in kinds(report)


def test_more_valid_bytes_behind_a_hole_than_two_groups_are_damage(
    plant: Plant, killed_contents: Contents
) -> None:
    meta = f"{DATA}/t-0/partition.metadata"
    holed = lowered(killed_contents, 0) | {MIDDLE: damage(killed_contents[MIDDLE], HEADER_SIZE + 3)}
    tree = plant(holed)
    assert kinds(check(tree.files, tree.path)) == [FindingKind.TORN_TAIL]
    bound = holed[meta].replace(b"unsynced_bytes_max: 2097176", b"unsynced_bytes_max: 100")
    tree.write(meta, bound)
    assert FindingKind.BATCH_DAMAGED in kinds(check(tree.files, tree.path))


def test_a_missing_segment_is_a_problem(plant: Plant, killed_contents: Contents) -> None:
    tree = plant(killed_contents)
    tree.files.remove(MIDDLE)
    found = list(check(tree.files, tree.path).logs[1].findings)
    assert found[0].kind is FindingKind.OFFSET_ORDER
    assert "starts at offset 12; the expected offset is 7" in found[0].what


def test_gaps_are_valid_only_in_compacted_ranges(plant: Plant, killed_contents: Contents) -> None:
    tree = plant(killed_contents)
    cleaned, meta = f"{DATA}/cleaner-offset-checkpoint", f"{DATA}/c-0/partition.metadata"
    tree.files.remove(cleaned)
    assert kinds(check(tree.files, tree.path)) == []
    tree.write(meta, tree.read(meta).partition(b"gaps_below")[0])
    assert FindingKind.OFFSET_ORDER in kinds(check(tree.files, tree.path))
    named = KnownMetadata(compacted=frozenset({"c"}))
    assert kinds(check(tree.files, tree.path, known=named)) == []
    topics = {
        "c": KnownTopic(topic_id=COMPACTED, is_compacted=True),
        "t": KnownTopic(topic_id=TOPIC, is_compacted=False),
    }
    assert kinds(check(tree.files, tree.path, known=KnownMetadata(topics=topics))) == []


def test_topic_ids_missing_from_the_metadata_log_are_problems(
    plant: Plant, closed_contents: Contents
) -> None:
    tree = plant(closed_contents)
    topics = {"t": KnownTopic(topic_id=TopicId(b"?" * 16), is_compacted=False)}
    known = KnownMetadata(topics=topics, directories={NodeId(ONE): DirectoryId(b"!" * 16)})
    found = kinds(check(tree.files, tree.path, known=known))
    assert found == [FindingKind.METADATA_WRONG, FindingKind.STRAY, FindingKind.METADATA_WRONG]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("t-0/00000000000000000007.log.cleaned", b"x", FindingKind.UNFINISHED),
        ("t-0/00000000000000000000.log.deleted", b"x", FindingKind.UNFINISHED),
        ("t-0/00000000000000000099.index", b"", FindingKind.UNFINISHED),
        ("t-0/00000000000000000014.snapshot", b"", FindingKind.SNAPSHOT_WRONG),
        ("t-0/00000000000000000099.snapshot", b"", FindingKind.SNAPSHOT_STALE),
        ("t-0/notes.txt", b"x", FindingKind.STRAY),
        ("meta.properties.tmp", b"x", FindingKind.UNFINISHED),
        ("old-0.0123456789abcdef-delete/x", b"x", FindingKind.UNFINISHED),
        ("lost+found/x", b"x", FindingKind.STRAY),
        ("log-start-offset-checkpoint", b"0\n1\ngone 0 5\n", FindingKind.CHECKPOINT_WRONG),
        ("log-start-offset-checkpoint", b"0\n1\nt 0 99\n", FindingKind.CHECKPOINT_WRONG),
        ("replication-offset-checkpoint", b"0\n1\nt 0 16\n", FindingKind.CHECKPOINT_WRONG),
        ("replication-offset-checkpoint", b"0\n1\nt 0 15\n", None),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0 15\n", FindingKind.CHECKPOINT_WRONG),
        ("quorum-state", b'{"leaderId": -1}', FindingKind.METADATA_WRONG),
        (".kafka_cleanshutdown", b"", FindingKind.CLEAN_MARKER_WRONG),
    ],
)
def test_unexpected_files_are_reported(
    plant: Plant, closed_contents: Contents, name: str, content: bytes, kind: FindingKind | None
) -> None:
    tree = plant(closed_contents | {f"{DATA}/{name}": content})
    assert kinds(check(tree.files, tree.path))[:1] == ([] if kind is None else [kind])


def test_a_log_that_ends_below_its_recovery_point_is_short(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(lowered(killed_contents, 20))
    found = check(tree.files, tree.path)
    assert FindingKind.LOG_SHORT in kinds(found)
    assert not found.is_ok


def test_a_swap_past_its_commit_point_is_read_as_what_it_becomes(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(killed_contents)
    first = f"{DATA}/t-0/00000000000000000000.log"
    swapped = f"{DATA}/t-0/00000000000000000000-7.log.swap"
    tree.write(swapped, killed_contents[first])
    tree.files.rename(first, f"{first}.deleted")
    report = check(tree.files, tree.path)
    assert report.is_ok
    assert kinds(report) == [FindingKind.UNFINISHED, FindingKind.UNFINISHED]


def test_directory_in_use_can_be_checked(plant: Plant, killed_contents: Contents) -> None:
    tree = plant(killed_contents)
    lock = tree.files.lock(f"{DATA}/.lock")
    report = check(tree.files, tree.path)
    assert report.is_in_use
    assert kinds(report) == [FindingKind.IN_USE]
    lock.release()
    assert not check(tree.files, tree.path).is_in_use


def test_one_log_is_checked_by_the_checkpoints_above_it(
    plant: Plant, closed_contents: Contents
) -> None:
    tree = plant(closed_contents)
    report = check(tree.files, f"{DATA}/t-0/")
    assert report.is_clean
    assert [log.recovery_point for log in report.logs] == [15]


def test_a_folder_alone_may_be_torn_at_its_end_and_nowhere_else(
    plant: Plant, closed_contents: Contents
) -> None:
    log = {
        path.replace(DATA, f"{DATA}/copies"): content
        for path, content in closed_contents.items()
        if "/t-0/" in path
    }
    tree = plant(log)
    last, middle = (path.replace(DATA, f"{DATA}/copies") for path in (LAST, MIDDLE))
    folder = f"{DATA}/copies/t-0"
    assert kinds(check(tree.files, folder)) == []
    tree.write(last, log[last][:-5])
    assert FindingKind.TORN_TAIL in kinds(check(tree.files, folder))
    tree.write(middle, damage(log[middle], HEADER_SIZE))
    assert FindingKind.BATCH_DAMAGED in kinds(check(tree.files, folder))


def test_check_rejects_a_folder_without_logs(plant: Plant, closed_contents: Contents) -> None:
    tree = plant(closed_contents)
    tree.files.make_folder(f"{DATA}/empty")
    for path in (f"{DATA}/empty", f"{DATA}/meta.properties"):
        with pytest.raises(InvalidRequest):
            check(tree.files, path)
