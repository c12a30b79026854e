"""A truncation in one go, without a directory."""

from quorumlog.runtime import Files
from quorumlog.storage import Log
from quorumlog.storage.truncation import find_truncation_point, perform_truncation


def truncate(log: Log, files: Files, offset: int) -> None:
    """Truncate every batch that holds or follows `offset`. Waits for the device."""
    truncation = log.truncator.begin(offset)
    if truncation is not None:
        cut = find_truncation_point(truncation)
        perform_truncation(files, truncation, cut)
        log.truncator.complete(truncation, cut)
