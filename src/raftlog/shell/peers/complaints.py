"""Peer errors, each logged once: an error that repeats at every attempt would flood the log."""

import logging
from typing import Final

from ....errors import QuorumlogError

_LOG = logging.getLogger("quorumlog.raftlog")

# (peer, error); beyond it the oldest is dropped and may be logged again
REMEMBERED_MAX: Final = 1_000


class Complaints:
    """The errors that were logged per peer."""

    def __init__(self) -> None:
        self._logged: dict[str, dict[str, None]] = {}  # names of errors by peer, oldest first

    def note(self, event: str, who: str, error: QuorumlogError) -> None:
        """Log an error of a peer unless it was logged before."""
        names = self._logged.setdefault(who, {})
        if error.name in names:
            return
        names[error.name] = None
        if len(self._logged) > REMEMBERED_MAX:
            del self._logged[next(iter(self._logged))]
        level = logging.INFO if error.retriable else logging.WARNING
        _LOG.log(level, "%s peer=%s error=%s: %s", event, who, error.name, error)

    def settle(self, who: str) -> None:
        """Reset a peer after a success: its next error is logged."""
        self._logged.pop(who, None)
