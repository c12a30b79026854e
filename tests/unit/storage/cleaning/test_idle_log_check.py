"""A look at a log that nobody has opened."""

from pathlib import Path

from quorumlog.runtime.files import RealFiles
from quorumlog.storage.config import LogConfig
from quorumlog.storage.idle_log_check import check_idle_log


def test_a_folder_whose_first_segment_was_never_made_has_nothing_to_remove(tmp_path: Path) -> None:
    """The process died between the two, and the log has not been opened since."""
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
