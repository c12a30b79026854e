"""The check of a log that is not open."""

from pathlib import Path

from quorumlog.runtime.files import RealFiles
from quorumlog.storage.config import LogConfig
from quorumlog.storage.idle_log_check import check_idle_log


def test_log_folder_without_a_first_segment_has_nothing_to_remove(tmp_path: Path) -> None:
    """The process died before it created the segment, and the log was not opened since."""
    found = check_idle_log(
        RealFiles(),
        str(tmp_path),
        LogConfig(),
        now_ms=1_000,
        log_start_offset=0,
        cleaned_to=0,
        since_ms=0,
    )
    assert not found.is_due
