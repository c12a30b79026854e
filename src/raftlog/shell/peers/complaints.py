"""Errors of peers, each logged once: what repeats at every attempt would be a storm."""

import logging
from typing import Final

from ....errors import QuorumlogError

_LOG = logging.getLogger("quorumlog.raftlog")

REMEMBERED_MAX: Final = 1_000  # (who, error); beyond it the oldest is forgotten, and may come again


class Complaints:
    """What was logged about whom."""

    def __init__(self) -> None:
        self._logged: dict[str, dict[str, None]] = {}  # names of errors by whom, oldest first

    def note(self, event: str, who: str, error: QuorumlogError) -> None:
        """Log an error of somebody, unless it is the same as before."""
        names = self._logged.setdefault(who, {})
        if error.name in names:
            return
        names[error.name] = None
        if len(self._logged) > REMEMBERED_MAX:
            del self._logged[next(iter(self._logged))]
        level = logging.INFO if error.retriable else logging.WARNING
        _LOG.log(level, "%s peer=%s error=%s: %s", event, who, error.name, error)

    def settle(self, who: str) -> None:
        """All is well with them: the next error is news."""
        self._logged.pop(who, None)
