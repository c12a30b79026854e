"""The check reports no problem for state that the next start repairs."""

from collections.abc import Callable

from quorumlog.records.batch import parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.inspect.findings import Severity
from quorumlog.storage.inspect.offset_check import EpochRun, OffsetCheck
from quorumlog.storage.inspect.scan import ValidBatch

from .conftest import DATA, Contents, Tree

Plant = Callable[[Contents], Tree]


def good(position: int, base_offset: int, *, epoch: int) -> ValidBatch:
    batch = encode_batch([Record(0, 0, b"k", b"v")], base_offset=base_offset, leader_epoch=epoch)
    return ValidBatch(position, parse_header(batch), batch, 0)


def test_batch_with_a_torn_base_offset_gives_no_epoch() -> None:
    """The CRC does not cover the base offset: with zeros there it is a valid batch of offset 0."""
    course = OffsetCheck(is_compacted=True, recovery_point=9)
    course.start_segment("f", 0, is_first=True, is_active=True)
    for position, base in enumerate((5, 8, 0)):
        course.good("f", good(position, base, epoch=3))
    assert course.fault_count == 1
    assert course.runs == [EpochRun(3, 5, 8)]


def test_folder_without_a_segment_needs_no_partition_metadata(
    plant: Plant, closed_contents: Contents
) -> None:
    """A full disk refused the first append, later ones went to other logs, and the stop was
    clean."""
    tree = plant(closed_contents | {f"{DATA}/x-0/partition.metadata": b""})
    problems = [f for f in check(tree.files, DATA).all_findings() if f.severity is Severity.PROBLEM]
    assert not problems
