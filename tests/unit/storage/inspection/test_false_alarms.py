"""A check reports no problem for the states that a node or a crash leaves, and does for similar
damage."""

from collections.abc import Callable

import pytest

from quorumlog.ids import DirectoryId, NodeId, TopicId
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.record import Record
from quorumlog.storage.checkpoints import decode_meta, encode_id
from quorumlog.storage.inspect.directory_check import KnownMetadata, check
from quorumlog.storage.inspect.findings import (
    CheckFinding,
    CheckReport,
    FindingKind,
    Findings,
    Severity,
)
from quorumlog.storage.inspect.producer_check import ProducerCheck
from quorumlog.storage.inspect.repair import repair
from quorumlog.storage.inspect.scan import ValidBatch
from quorumlog.storage.producer_snapshot import ProducerSnapshot, encode_snapshot
from quorumlog.storage.producer_state import ProducerEntry, StoredBatch
from quorumlog.storage.transaction_index import AbortedTransaction, encode_aborted

from .conftest import DATA, ONE, Contents, Tree

Plant = Callable[[Contents], Tree]

FIRST = f"{DATA}/t-0/00000000000000000000.log"
MIDDLE = f"{DATA}/t-0/00000000000000000007.log"
LAST = f"{DATA}/t-0/00000000000000000012.log"
POINTS = f"{DATA}/recovery-point-offset-checkpoint"
MARKS = f"{DATA}/replication-offset-checkpoint"
STARTS = f"{DATA}/log-start-offset-checkpoint"


def problems(report: CheckReport) -> list[FindingKind]:
    return [one.kind for one in report.all_findings() if one.severity is Severity.PROBLEM]


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


# --- checkpoints after a kill --------------------------------------------------------------------


def test_a_high_watermark_may_lag_behind_a_log_start_after_a_kill(
    plant: Plant, killed_contents: Contents, closed_contents: Contents
) -> None:
    """A deletion of records is durable at once; the high watermark is stored at intervals."""
    stored = {STARTS: b"0\n1\nt 0 8\n", MARKS: b"0\n1\nt 0 5\n"}
    tree = plant(killed_contents | stored)
    assert problems(check(tree.files, DATA)) == []
    tree = plant(closed_contents | stored)
    assert FindingKind.CHECKPOINT_WRONG in problems(check(tree.files, DATA))


def test_power_cut_may_lose_committed_records_of_a_replicated_log_only(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(killed_contents | {MARKS: b"0\n1\nc 0 99\n"})
    assert problems(check(tree.files, DATA)) == []
    tree.write(MARKS, b"0\n1\nt 0 99\n")  # an fsync log commits what is flushed
    assert problems(check(tree.files, DATA)) == [FindingKind.CHECKPOINT_WRONG]


# --- a directory in use --------------------------------------------------------------------------


def test_segments_deleted_by_a_running_node_during_a_check_are_no_problem(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(killed_contents)
    lock = tree.files.lock(f"{DATA}/.lock")

    def retention(size: int) -> None:
        """Rename two segments for deletion between two segments of the check."""
        if size == len(killed_contents[FIRST]) and tree.files.exists(MIDDLE):
            tree.files.rename(FIRST, f"{FIRST}.deleted")
            tree.files.rename(MIDDLE, f"{MIDDLE}.deleted")

    report = check(tree.files, DATA, progress=retention)
    lock.release()
    assert problems(report) == []
    assert report.logs[1].log_start_offset == 12


# --- a cluster's metadata ------------------------------------------------------------------------


def test_a_node_that_is_not_registered_yet_is_no_problem(
    plant: Plant, closed_contents: Contents
) -> None:
    tree = plant(closed_contents)
    mine = decode_meta(closed_contents[f"{DATA}/meta.properties"]).directory_id
    other = DirectoryId(b"!" * 16)

    def found(directories: dict[NodeId, DirectoryId]) -> list[FindingKind]:
        return problems(check(tree.files, DATA, known=KnownMetadata(directories=directories)))

    assert found({NodeId(7): other}) == []
    assert found({ONE: mine}) == []
    assert found({ONE: other}) == [FindingKind.METADATA_WRONG]
    assert found({NodeId(7): mine}) == [FindingKind.METADATA_WRONG]


def test_a_topic_has_one_id_and_an_id_one_topic(plant: Plant, closed_contents: Contents) -> None:
    def copied(name: str) -> Contents:
        return {
            path.replace("/t-0/", f"/{name}/"): content
            for path, content in closed_contents.items()
            if "/t-0/" in path
        }

    points = closed_contents[POINTS].replace(b"\n2\n", b"\n3\n")
    tree = plant(closed_contents | copied("t-1") | {POINTS: points + b"t 1 15\n"})
    assert problems(check(tree.files, DATA)) == []
    renamed = plant(closed_contents | copied("u-0") | {POINTS: points + b"u 0 15\n"})
    renamed.files.remove(f"{DATA}/t-1/partition.metadata")
    (found,) = metadata_findings(renamed)
    assert found.file == f"{DATA}/u-0/partition.metadata"
    assert found.what == "its topic id is also that of t"
    changed = meta_with(closed_contents[f"{DATA}/t-0/partition.metadata"], TopicId(b"?" * 16))
    renamed.files.remove(f"{DATA}/u-0/partition.metadata")
    renamed.write(f"{DATA}/t-1/partition.metadata", changed)
    (found,) = metadata_findings(renamed)
    assert "differs from that of other partitions of t" in found.what


def metadata_findings(tree: Tree) -> list[CheckFinding]:
    return [
        f for f in check(tree.files, DATA).all_findings() if f.kind is FindingKind.METADATA_WRONG
    ]


def meta_with(content: bytes, topic_id: TopicId) -> bytes:
    return content[:21] + encode_id(topic_id).encode() + content[43:]


# --- what looks alike ----------------------------------------------------------------------------


def test_a_segment_whose_log_is_gone_is_a_problem_also_in_a_compacted_log(
    plant: Plant, closed_contents: Contents
) -> None:
    """A crash leaves indexes without a .log file only before the first segment or behind the
    last."""
    middle = f"{DATA}/c-0/00000000000000000010"
    third = {
        f"{DATA}/c-0/{40:020d}.log": encode_batch(
            [Record(40, 1_000, b"k", b"v")], base_offset=40, leader_epoch=0
        ),
        POINTS: closed_contents[POINTS].replace(b"c 0 31", b"c 0 41"),
    }
    tree = plant(closed_contents | third)
    assert problems(check(tree.files, DATA)) == []
    tree.files.remove(f"{middle}.log")
    assert FindingKind.OFFSET_ORDER in problems(check(tree.files, DATA))


def test_two_swapped_segments_are_a_problem(plant: Plant, killed_contents: Contents) -> None:
    gappy = (f"{DATA}/c-0/{0:020d}.log", f"{DATA}/c-0/{10:020d}.log")
    for first, second in ((FIRST, MIDDLE), gappy):
        tree = plant(
            killed_contents | {first: killed_contents[second], second: killed_contents[first]}
        )
        found = problems(check(tree.files, DATA))
        assert (FindingKind.INDEX_WRONG if first == gappy[0] else FindingKind.OFFSET_ORDER) in found
        tree.write(first, killed_contents[first])
        tree.write(second, killed_contents[second])


def test_a_last_batch_that_is_gone_below_the_recovery_point_is_a_problem(
    plant: Plant, killed_contents: Contents, closed_contents: Contents
) -> None:
    for contents in (killed_contents, closed_contents):
        for path in (MIDDLE, LAST):
            cut = contents[path][: _last_batch(contents[path])]
            tree = plant(contents | {path: cut})
            assert problems(check(tree.files, DATA)), path
            tree.write(path, contents[path])


def _last_batch(content: bytes) -> int:
    position = 0
    while True:
        following = position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")
        if following >= len(content):
            return position
        position = following


def test_checkpoints_of_another_directory_are_a_problem(
    plant: Plant, closed_contents: Contents
) -> None:
    tree = plant(closed_contents | {POINTS: b"0\n2\nx 0 31\ny 0 15\n"})
    assert problems(check(tree.files, DATA)) == [FindingKind.CHECKPOINT_WRONG] * 4


# --- repairs -------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_read_keeps_its_checkpoints(
    plant: Plant, closed_contents: Contents
) -> None:
    marks = {MARKS: b"0\n2\nc 0 31\nt 0 15\n", STARTS: b"0\n1\ngone 0 5\n"}
    tree = plant(closed_contents | marks)
    tree.files.remove(LAST)
    tree.files.make_folder(LAST)  # cannot be read as a file
    found = check(tree.files, DATA)
    assert FindingKind.UNREADABLE in problems(found)
    report = repair(tree.files, DATA, cut_to="/aside")
    assert not report.is_ok
    assert tree.read(MARKS) == marks[MARKS]
    assert tree.read(POINTS) == closed_contents[POINTS]
    assert any("is unreadable" in refused for refused in report.refused)


def test_nothing_is_cut_as_torn_while_the_recovery_points_are_lost(
    plant: Plant, killed_contents: Contents
) -> None:
    broken = {POINTS: b"nonsense", MIDDLE: flipped(killed_contents[MIDDLE], HEADER_SIZE + 1)}
    tree = plant(killed_contents | broken)
    report = repair(tree.files, DATA)
    assert not report.is_ok
    assert tree.read(MIDDLE) == broken[MIDDLE]
    assert tree.read(POINTS) == broken[POINTS]
    assert any("--cut-damage" in refused for refused in report.refused)
    report = repair(tree.files, DATA, cut_to="/aside")
    assert report.is_ok, report.as_dict()
    assert tree.read("/aside/t-0/00000000000000000007.log.from-0") == broken[MIDDLE]
    assert tree.read("/aside/t-0/00000000000000000012.log") == killed_contents[LAST]


def test_a_log_whose_folder_is_gone_is_not_forgotten_unless_it_is_asked_for(
    plant: Plant, closed_contents: Contents
) -> None:
    """A start would create a new log and hide that records were lost."""
    contents = {path: content for path, content in closed_contents.items() if "/t-0/" not in path}
    tree = plant(contents)
    report = repair(tree.files, DATA)
    assert not report.is_ok
    assert report.done == []
    assert any("t-0 has no folder;" in refused for refused in report.refused)
    assert tree.read(POINTS) == closed_contents[POINTS]
    report = repair(tree.files, DATA, cut_to="/aside")
    assert report.is_ok, report.as_dict()
    assert tree.read(POINTS) == b"0\n1\nc 0 31\n"


def test_marker_with_invalid_content_is_truncated_like_any_batch(
    plant: Plant, killed_contents: Contents
) -> None:
    """Its CRC is right and its record decodes, but its transaction state is invalid."""
    nonsense = encode_batch(
        [Record(15, 1_000, b"\x00", b"?")],
        base_offset=15,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=0,
        base_sequence=-1,
        is_transactional=True,
        is_control=True,
    )
    more = {
        LAST: killed_contents[LAST] + nonsense,
        POINTS: killed_contents[POINTS].replace(b"t 0 15", b"t 0 16"),
    }
    tree = plant(killed_contents | more)
    (finding,) = check(tree.files, DATA).logs[1].findings
    assert finding.kind is FindingKind.BATCH_MALFORMED
    assert (finding.file, finding.offset) == (LAST, 15)
    assert finding.position == len(killed_contents[LAST])
    report = repair(tree.files, DATA, cut_to="/aside")
    assert report.is_ok, report.as_dict()
    assert any("truncate offsets [15, 16)" in done for done in report.done)


# --- compacted logs ------------------------------------------------------------------------------


def test_a_snapshot_may_have_a_batch_that_compaction_removed_later(plant: Plant) -> None:
    """Compaction keeps the last batch of a producer, not its last batch below each snapshot."""
    batch = StoredBatch(
        first_sequence=10, last_sequence=11, first_offset=10, last_offset=11, timestamp=0
    )
    entry = producer_entry(-1, batch)
    assert found_in(plant, entry, is_compacted=True) == []
    assert found_in(plant, entry, is_compacted=False) == [FindingKind.SNAPSHOT_WRONG]


@pytest.mark.parametrize(
    ("transaction_start", "left"),
    [
        pytest.param(3, (), id="open, all of it removed"),
        pytest.param(3, (7,), id="open, its first batch removed"),
        pytest.param(-1, (), id="decided, all of it removed"),
    ],
)
def test_a_snapshot_may_have_a_transaction_that_compaction_removed_later(
    plant: Plant, transaction_start: int, left: tuple[int, ...]
) -> None:
    """Batches 3 and 7 have no sequence numbers, like committed offsets, so compaction removes their
    headers."""
    entry = producer_entry(transaction_start)
    assert found_in(plant, entry, *left, is_compacted=True) == []
    assert found_in(plant, entry, *left, is_compacted=False) == [FindingKind.SNAPSHOT_WRONG]


def test_a_snapshot_behind_the_batches_of_a_compacted_log_is_a_problem(plant: Plant) -> None:
    """Compaction explains batches missing from the log, not batches missing from the snapshot."""
    older = producer_entry(3)._replace(epoch=0)
    for wrong in (producer_entry(-1), producer_entry(9), older):
        found = found_in(plant, wrong, 3, 7, is_compacted=True)
        assert found == [FindingKind.SNAPSHOT_WRONG]
    first = StoredBatch(
        first_sequence=3, last_sequence=3, first_offset=3, last_offset=3, timestamp=0
    )
    for wrong in (producer_entry(3), producer_entry(3, first)):
        found = found_in(plant, wrong, 3, 4, is_compacted=True, is_sequenced=True)
        assert found == [FindingKind.SNAPSHOT_WRONG]


def producer_entry(transaction_start: int, *batches: StoredBatch) -> ProducerEntry:
    """Return an entry with an open transaction. Offset -1: none."""
    return ProducerEntry(
        epoch=1,
        coordinator_epoch=-1,
        next_sequence=batches[-1].last_sequence + 1 if batches else -1,
        transaction_start=transaction_start,
        touched_ms=0,
        batches=batches,
    )


def found_in(
    plant: Plant,
    entry: ProducerEntry,
    *offsets: int,
    is_compacted: bool,
    is_sequenced: bool = False,
) -> list[FindingKind]:
    """Return the findings for a snapshot with this producer and a log with transactional batches at
    these offsets."""
    snapshot = ProducerSnapshot(end_offset=12, entries=((1, entry),), unreplicated=(), age_ms=0)
    name = "00000000000000000012.snapshot"
    tree = plant({f"{DATA}/t-0/{name}": encode_snapshot(snapshot)})
    findings = Findings()
    producers = ProducerCheck(tree.files, f"{DATA}/t-0", [name], first=0, is_compacted=is_compacted)
    for offset in offsets:
        content = encode_batch(
            [Record(0, 1_000, b"k", b"v")],
            base_offset=offset,
            leader_epoch=0,
            producer_id=1,
            producer_epoch=1,
            base_sequence=offset if is_sequenced else -1,
            is_transactional=True,
        )
        assert producers.good(ValidBatch(0, parse_header(content), content, 0), findings) is None
    producers.end(12, findings)
    return [each.kind for each in findings.kept]


def test_compaction_may_remove_the_first_records_of_an_ended_transaction(plant: Plant) -> None:
    """An older snapshot and the transaction index keep the transaction's original first offset."""
    batches = [
        encode_batch(
            [Record(0, 1_000, b"k", b"v")],
            base_offset=offset,
            leader_epoch=0,
            producer_id=1,
            producer_epoch=0,
            base_sequence=offset,
            is_transactional=True,
        )
        for offset in (10, 11)
    ]
    batch = StoredBatch(
        first_sequence=11, last_sequence=11, first_offset=11, last_offset=11, timestamp=0
    )
    entry = ProducerEntry(
        epoch=0,
        coordinator_epoch=-1,
        next_sequence=12,
        transaction_start=10,
        touched_ms=0,
        batches=(batch,),
    )
    snapshot = ProducerSnapshot(end_offset=12, entries=((1, entry),), unreplicated=(), age_ms=0)
    aborted = AbortedTransaction(
        producer_id=1, first_offset=10, last_offset=12, last_stable_offset=13
    )
    marker = encode_marker(
        producer_id=1,
        producer_epoch=0,
        kind=MarkerType.ABORT,
        coordinator_epoch=0,
        timestamp_ms=0,
        base_offset=12,
    )
    snapshot_name, index_name = "00000000000000000012.snapshot", "00000000000000000000.txnindex"
    tree = plant(
        {
            f"{DATA}/t-0/{snapshot_name}": encode_snapshot(snapshot),
            f"{DATA}/t-0/{index_name}": encode_aborted([aborted]),
        }
    )

    def found(stored: list[bytes], *, is_compacted: bool) -> list[FindingKind]:
        findings = Findings()
        names = [snapshot_name, index_name]
        producers = ProducerCheck(
            tree.files, f"{DATA}/t-0", names, first=0, is_compacted=is_compacted
        )
        for content in stored:
            assert (
                producers.good(ValidBatch(0, parse_header(content), content, 0), findings) is None
            )
        producers.end_segment(0, 13, findings)
        producers.end(13, findings)
        return sorted(each.kind for each in findings.kept)

    whole = [*batches, marker]
    assert found(whole, is_compacted=False) == []
    assert found(whole[1:], is_compacted=True) == []
    assert found(whole[1:], is_compacted=False) == [
        FindingKind.SNAPSHOT_WRONG,
        FindingKind.TRANSACTION_INDEX_WRONG,
    ]
