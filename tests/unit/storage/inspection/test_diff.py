"""Differences between two copies of a log, and the differences that have an explanation."""

from collections.abc import Callable, Sequence

import pytest

from quorumlog.errors import InvalidRequest
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.record import Record
from quorumlog.storage.inspect import diff as diff_module
from quorumlog.storage.inspect.diff import DifferenceKind, LogDiff, diff
from quorumlog.storage.transaction_index import AbortedTransaction, encode_aborted

from .conftest import DATA, Contents, Tree

Plant = Callable[[Contents], Tree]
META = b"cluster.id=c\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=1\nversion=1\n"


def records(offsets: Sequence[int], *, keys: int = 100, value: bytes = b"v") -> list[Record]:
    return [Record(at, 1_000 + at, b"k%d" % (at % keys), value) for at in offsets]


def batch(
    offsets: Sequence[int],
    *,
    codec: Codec = Codec.NONE,
    epoch: int = 0,
    keys: int = 100,
    value: bytes = b"v",
) -> bytes:
    return encode_batch(
        records(offsets, keys=keys, value=value),
        base_offset=offsets[0],
        codec=codec,
        leader_epoch=epoch,
        keep_offsets=True,
    )


def compared(
    plant: Plant, a: bytes, b: bytes, *, files: Contents | None = None, base_b: int = 0
) -> LogDiff:
    """Compare two logs of one segment each."""
    tree = plant(
        {
            f"{DATA}/a/t-0/{0:020d}.log": a,
            f"{DATA}/b/t-0/{base_b:020d}.log": b,
            f"{DATA}/a/meta.properties": META,
            f"{DATA}/b/meta.properties": META,
            **(files or {}),
        }
    )
    found = diff(tree.files, f"{DATA}/a", f"{DATA}/b")
    return found.logs[0]


def counts(found: LogDiff) -> dict[tuple[str, str], int]:
    return {(str(why), only_in): count for (why, only_in), count in found.counts.items()}


def test_other_batches_and_codecs_of_the_same_records_are_no_difference(plant: Plant) -> None:
    one = batch(range(6))
    other = batch(range(2), codec=Codec.ZSTD) + batch(range(2, 6), codec=Codec.GZIP)
    found = compared(plant, one, other)
    assert found.is_same
    assert (found.same_count, counts(found)) == (6, {})


def test_other_leader_epochs_are_a_difference(plant: Plant) -> None:
    found = compared(plant, batch(range(4)), batch(range(2)) + batch(range(2, 4), epoch=1))
    assert not found.is_same
    assert counts(found) == {("epoch", ""): 2}
    assert found.same_count == 2
    same_bytes = compared(plant, batch(range(4)), batch(range(4), epoch=1))
    assert counts(same_bytes) == {("epoch", ""): 4}


def test_different_values_are_both_reported(plant: Plant) -> None:
    found = compared(plant, batch(range(3)), batch(range(2)) + batch([2], value=b"w"))
    assert counts(found) == {("content", ""): 1}
    (difference,) = found.differences
    assert difference.first_offset == 2
    assert "b'v' in A, b'w' in B" in difference.detail


def test_records_below_the_other_log_start_are_explained(plant: Plant) -> None:
    found = compared(plant, batch(range(4)) + batch(range(4, 8)), batch(range(6, 8)), base_b=6)
    assert found.is_same
    assert counts(found) == {("below-start", "A"): 6}
    assert found.same_count == 2


@pytest.mark.parametrize(("mark", "why"), [(4, "above-high-watermark"), (6, "missing")])
def test_a_longer_log_is_explained_above_the_high_watermark_alone(
    plant: Plant, mark: int, why: str
) -> None:
    marks = {f"{DATA}/a/replication-offset-checkpoint": b"0\n1\nt 0 %d\n" % mark}
    found = compared(plant, batch(range(4)) + batch(range(4, 8)), batch(range(4)), files=marks)
    above = ("above-high-watermark", "A")
    assert found.is_same == (why != "missing")
    assert counts(found) == ({(why, "A"): 4} if mark == 4 else {(why, "A"): 2, above: 2})


CLEANED = {f"{DATA}/b/cleaner-offset-checkpoint": b"0\n1\nt 0 8\n"}


@pytest.mark.parametrize("candidates_max", [1, 100_000])
def test_compaction_explains_superseded_records_and_old_deletes_alone(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, candidates_max: int
) -> None:
    monkeypatch.setattr(diff_module, "CANDIDATES_MAX", candidates_max)
    deleted = encode_batch([Record(8, 1, b"gone", None)], base_offset=8)
    last = batch([9], keys=1)
    whole = batch(range(8), keys=4) + deleted + last
    cleaned = batch([4, 5, 7], keys=4) + last  # 0 to 3 superseded by 4 to 7, and 6 was lost
    found = compared(plant, whole, cleaned, files=CLEANED)
    assert counts(found) == {
        ("superseded", "A"): 3,
        ("tombstone", "A"): 1,
        ("missing", "A"): 2,
    }
    missing = [one.first_offset for one in found.differences if one.why is DifferenceKind.MISSING]
    assert missing == [2, 6] or missing == [2]
    uncompacted = compared(plant, whole, cleaned, files={CLEANER: b"0\n0\n"})
    assert counts(uncompacted) == {("missing", "A"): 6}


CLEANER = f"{DATA}/b/cleaner-offset-checkpoint"


def test_a_marker_may_be_gone_where_compaction_was_and_nowhere_else(plant: Plant) -> None:
    marker = encode_marker(
        producer_id=1,
        producer_epoch=0,
        kind=MarkerType.ABORT,
        coordinator_epoch=0,
        timestamp_ms=1,
        leader_epoch=0,
        base_offset=2,
    )
    whole, gone = batch(range(2)) + marker + batch([3]), batch([0, 1, 3])
    found = compared(plant, whole, gone)
    assert counts(found) == {("missing", "A"): 1}
    found = compared(plant, whole, gone, files=CLEANED)
    assert found.is_same
    assert counts(found) == {("control", "A"): 1}


def test_damage_and_other_topics_are_differences(plant: Plant) -> None:
    good = batch(range(3))
    found = compared(plant, good + batch([3]), good + batch([3])[:-1] + b"?")
    assert counts(found) == {("missing", "A"): 1, ("unreadable", "B"): 0}
    assert not found.is_same
    ids = {
        f"{DATA}/a/t-0/partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n",
        f"{DATA}/b/t-0/partition.metadata": b"version: 0\ntopic_id: AQECAwQFBgcICQoLDA0ODw\n",
    }
    assert counts(compared(plant, good, good, files=ids)) == {("topic-id", ""): 0}


def test_logs_in_one_directory_only_are_reported(plant: Plant, closed_contents: Contents) -> None:
    copy = {
        path.replace(DATA, f"{DATA}/copy"): content
        for path, content in closed_contents.items()
        if "/c-0/" not in path
    }
    tree = plant(closed_contents | copy)
    found = diff(tree.files, DATA, f"{DATA}/copy")
    assert found.only_in_a == ["c-0"]
    assert not found.is_same
    assert found.logs[0].same_count == 15
    assert diff(tree.files, f"{DATA}/t-0", f"{DATA}/copy/t-0").is_same
    with pytest.raises(InvalidRequest, match="differ in kind"):
        diff(tree.files, DATA, f"{DATA}/t-0")


# --- wrong explanations --------------------------------------------------------------------------


def test_a_delete_that_is_lost_while_its_value_is_there_is_missing(plant: Plant) -> None:
    """The key reappears in the other log, which compaction cannot cause."""
    value = encode_batch([Record(0, 1, b"gone", b"v")], base_offset=0)
    deleted = encode_batch([Record(1, 2, b"gone", None)], base_offset=1)
    last = batch([9], keys=1)
    found = compared(plant, value + deleted + last, value + last, files=CLEANED)
    assert counts(found) == {("missing", "A"): 1}
    both_gone = compared(plant, value + deleted + last, last, files=CLEANED)
    assert counts(both_gone) == {("missing", "A"): 1, ("tombstone", "A"): 1}


def test_each_record_is_explained_by_itself(plant: Plant) -> None:
    """The older of two records of one key was superseded; the newer one is lost."""
    whole = batch([0, 4, 8], keys=4) + batch([9])
    found = compared(plant, whole, batch([4], keys=4) + batch([9]), files=CLEANED)
    assert counts(found) == {("superseded", "A"): 1, ("missing", "A"): 1}


def test_no_record_of_an_aborted_transaction_supersedes_another(plant: Plant) -> None:
    """Compaction ignores its records, and so do consumers of committed records."""
    aborted = encode_batch(
        [Record(6, 1_006, b"k0", b"never")],
        base_offset=6,
        leader_epoch=0,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker = encode_marker(
        producer_id=9,
        producer_epoch=0,
        kind=MarkerType.ABORT,
        coordinator_epoch=0,
        timestamp_ms=1,
        leader_epoch=0,
        base_offset=7,
    )
    indexes = {
        f"{DATA}/{side}/t-0/{0:020d}.txnindex": encode_aborted([AbortedTransaction(9, 6, 7, 8)])
        for side in "ab"
    }
    rest = aborted + marker
    one = batch([0, 1], keys=4)
    found = compared(plant, one + rest, batch([1], keys=4) + rest, files=CLEANED | indexes)
    assert counts(found) == {("missing", "A"): 1}


def test_memory_of_candidates_is_bounded_in_bytes(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_module, "CANDIDATE_BYTES_MAX", 1)
    found = compared(plant, batch(range(8), keys=4), batch(range(4, 8), keys=4), files=CLEANED)
    assert counts(found) == {("superseded", "A"): 4}


def test_a_swap_past_its_commit_point_is_compared_as_what_it_becomes(plant: Plant) -> None:
    content = batch(range(4))
    swap = {
        f"{DATA}/b/t-0/{0:020d}-4.log.swap": content,
        f"{DATA}/b/t-0/{0:020d}.log.deleted": content,
    }
    assert counts(compared(plant, content + batch([4]), batch([4]), files=swap, base_b=4)) == {}


def test_logs_may_diverge_above_the_high_watermark(plant: Plant) -> None:
    """The old leader's last records were not committed; the new leader wrote others there."""
    marks = {f"{DATA}/{side}/replication-offset-checkpoint": b"0\n1\nt 0 2\n" for side in "ab"}
    mine, theirs = batch([2, 3], epoch=1, value=b"a"), batch([2, 3], epoch=2, value=b"b")
    found = compared(plant, batch(range(2)) + mine, batch(range(2)) + theirs, files=marks)
    assert counts(found) == {("above-high-watermark", ""): 2}
    assert found.is_same
    beyond = {path: b"0\n1\nt 0 3\n" for path in marks}
    found = compared(plant, batch(range(2)) + mine, batch(range(2)) + theirs, files=beyond)
    assert counts(found) == {("content", ""): 1, ("above-high-watermark", ""): 1}
