"""Recovery distinguishes gaps of compaction from lost records without the cleaner's checkpoints."""

from typing import Any

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.ids import TopicId
from quorumlog.records.codec import decode_all
from quorumlog.storage import LogConfig
from quorumlog.storage.checkpoints import decode_partition_metadata, encode_partition_metadata
from quorumlog.storage.data_directory_state import recover_log
from quorumlog.storage.layout import LOG_SUFFIX, PARTITION_METADATA, join, segment_file
from quorumlog.storage.recovery import LogState, Recovery
from quorumlog.storage.small_files import read_file, write_file

from .compacted_log import Shelf, pairs

TOPIC = TopicId(b"t" * 16)
COMPACTED = LogConfig(compacted=True, index_interval_bytes=64)
DELETED = LogConfig(index_interval_bytes=64)


@pytest.fixture
def cleaned(shelf: Shelf) -> Shelf:
    """Return segments with gaps inside and between, and no record of them in the folder."""
    for _ in range(3):
        shelf.append(*pairs(b"a", b"b", b"c", value=b"v" * 200))
        shelf.append(*pairs(b"a", b"b", b"c", value=b"v" * 200))
        shelf.roll()
    shelf.append(*pairs(b"a", b"b"))
    shelf.roll()
    shelf.append(*pairs(b"a"))
    shelf.roll()
    shelf.clean(segment_bytes=400)
    bases = [segment.base_offset for segment in shelf.segments]
    ends = {header.next_offset for header in shelf.headers()}
    assert not set(bases[1:]) <= ends, "there is a gap between two segments"
    store_gaps_below(shelf, None)
    return shelf


def store_gaps_below(shelf: Shelf, gaps_below: int | None) -> None:
    content = encode_partition_metadata(TOPIC, gaps_below=gaps_below)
    write_file(shelf.files, join(shelf.folder, PARTITION_METADATA), content)


def stored_gaps_below(shelf: Shelf) -> int | None:
    content = read_file(shelf.files, join(shelf.folder, PARTITION_METADATA))
    return decode_partition_metadata(content).gaps_below


def recovered(shelf: Shelf, **changes: Any) -> LogState:
    settings: dict[str, Any] = {
        "folder": shelf.folder,
        "config": COMPACTED,
        "is_clean": False,
        "recovery_point": 0,
        "log_start_offset": 0,
        "torn_bytes_max": None,
        "wall_ms": 0,
        **changes,
    }
    return recover_log(shelf.files, Recovery(**settings), TOPIC)


def kept(shelf: Shelf, state: LogState) -> list[int]:
    content = b"".join(read_file(shelf.files, segment.path) for segment in state.segments)
    return [record.offset for record in decode_all(content)]


@pytest.mark.parametrize("point", [0, 5, 18])
def test_compacted_folder_without_checkpoints_is_not_truncated_at_its_gaps(
    cleaned: Shelf, point: int
) -> None:
    """A folder copied from another server, or one that lost both checkpoints and
    partition.metadata."""
    offsets = cleaned.offsets()
    state = recovered(cleaned, recovery_point=point)
    assert kept(cleaned, state) == offsets
    assert state.log_end_offset == cleaned.next_offset


def test_partition_metadata_keeps_gaps_valid_without_policy_and_checkpoints(
    cleaned: Shelf,
) -> None:
    offsets = cleaned.offsets()
    recovered(cleaned, cleaned_to=cleaned.first_dirty)
    assert stored_gaps_below(cleaned) is not None
    for is_clean in (False, True):
        state = recovered(cleaned, config=DELETED, is_clean=is_clean)
        assert kept(cleaned, state) == offsets
        assert state.gaps_below is not None


def test_gap_above_the_recorded_compaction_is_truncated(cleaned: Shelf) -> None:
    """A segment that was never flushed is missing."""
    recovered(cleaned)
    gaps_below = stored_gaps_below(cleaned)
    assert gaps_below == cleaned.segments[-1].base_offset
    end = cleaned.next_offset
    for _ in range(3):
        cleaned.append(*pairs(b"x", b"y"))
        cleaned.roll()
    cleaned.files.remove(join(cleaned.folder, segment_file(end + 2, LOG_SUFFIX)))
    state = recovered(cleaned, cleaned_to=0)
    assert state.log_end_offset == end + 2


def test_log_that_was_never_compacted_is_truncated_at_a_gap_under_any_policy(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.append(*pairs(b"x", b"y"))
        shelf.roll()
    store_gaps_below(shelf, 0)
    shelf.files.remove(join(shelf.folder, segment_file(2, LOG_SUFFIX)))
    assert recovered(shelf).log_end_offset == 2


def test_gap_below_the_recovery_point_is_corruption_without_compaction(
    cleaned: Shelf,
) -> None:
    with pytest.raises(CorruptionError):
        recovered(cleaned, config=DELETED, recovery_point=cleaned.next_offset - 1)
