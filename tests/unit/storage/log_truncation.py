"""A complete truncation of a log without a data directory."""

from quorumlog.runtime import Files
from quorumlog.storage import Log
from quorumlog.storage.truncation import find_truncation_point, perform_truncation


def truncate(log: Log, files: Files, offset: int) -> None:
    """Truncate every batch that contains or follows `offset`. This blocks on the device."""
    truncation = log.truncator.begin(offset)
    if truncation is not None:
        cut = find_truncation_point(truncation)
        perform_truncation(files, truncation, cut)
        log.truncator.complete(truncation, cut)
