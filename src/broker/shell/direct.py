"""Appends of the hot path: what `appends` does for callers with a task, told by a call instead.

No future, no task and no timer is made for one. What the log has written in a turn of the loop is
looked at together, in the next: by then the high watermark has moved as well. A caller that waits
no longer says so; nobody else counts the time.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from ...errors import QuorumlogError
from ...ids import Epoch
from ...storage.shell.append_queue import Appended
from ..partition import Acks, Wait
from .appends import check_leadership, not_in_time
from .replica import Replica

_LOG: Final = logging.getLogger("quorumlog.broker")

Settled: TypeAlias = Appended | QuorumlogError
"""What became of an append."""

Tell: TypeAlias = Callable[[Settled], None]


class Settling:
    """The appends of which there is news, until the next turn of the loop."""

    __slots__ = ("_news",)

    def __init__(self) -> None:
        self._news: list[DirectAppend] = []

    def add(self, append: "DirectAppend") -> None:
        """Look at this one soon."""
        if not self._news:
            asyncio.get_running_loop().call_soon(self._look)
        self._news.append(append)

    def _look(self) -> None:
        news, self._news = self._news, []
        for append in news:
            try:
                append.look()
            except Exception:  # a bug: others, of other clients, are told all the same
                _LOG.exception("broker.append_not_told")


class DirectAppend:
    """Batches with a place in the log. The log takes it for the future that it answers."""

    __slots__ = (
        "_acks",
        "_appended",
        "_error",
        "_leader_epoch",
        "_replica",
        "_settling",
        "_tell",
        "_wait",
        "is_acknowledged",
    )

    def __init__(
        self, settling: Settling, replica: Replica, acks: Acks, leader_epoch: Epoch
    ) -> None:
        self._settling = settling
        self._replica = replica
        self._acks = acks
        self._leader_epoch = leader_epoch  # in which the batches are given their place
        self._appended: Appended | None = None
        self._error: Exception | None = None
        self._tell: Tell | None = None  # whoever was promised a call
        self._wait: Wait | None = None  # for the acknowledgement
        self.is_acknowledged = False  # as far as the partition has said

    # --- for the log ---------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the log has answered."""
        return self._appended is not None or self._error is not None

    def set_result(self, appended: Appended) -> None:
        """The batches are in the log."""
        self._appended = appended
        if self._tell is not None:
            self._settling.add(self)

    def set_exception(self, error: Exception) -> None:
        """They are not, or the partition says why it will not acknowledge them."""
        self._error = error
        if self._tell is not None:
            self._settling.add(self)

    def acknowledge(self) -> None:
        """The partition says that all who have to have them have them."""
        self.is_acknowledged = True
        if self._tell is not None:
            self._settling.add(self)

    # --- producers --------------------------------------------------------------------------------

    def settled(self) -> Settled | None:
        """Return what became of it, None: that is not known yet."""
        error, appended = self._error, self._appended
        if error is not None:
            if isinstance(error, QuorumlogError):
                return error
            raise error
        if appended is None:
            return None
        if self._acks is Acks.NONE or self.is_acknowledged:
            return appended
        try:
            check_leadership(self._replica, self._leader_epoch)
        except QuorumlogError as lost:
            return lost
        partition = self._replica.partition
        return appended if partition.is_acknowledged(self._acks, appended.next_offset) else None

    def call_when_settled(self, tell: Tell) -> None:
        """Have `tell` called once, on the loop and never from within this call, when it is known
        what became of it; `settled` said that it is not."""
        assert self._tell is None, "one is promised a call already"
        self._tell = tell
        if self._appended is not None:
            self._await_acknowledgement(self._appended)

    def expire(self) -> Settled:
        """Wait no longer, and call nobody; returns what to tell whoever waited for it."""
        self._tell = None
        if self._wait is not None:
            self._replica.partition.cancel(self._wait)
            self._wait = None
        return self.settled() or not_in_time(self._replica.partition)

    def look(self) -> None:
        """There was news of it."""
        tell = self._tell
        if tell is None:
            return  # it has expired
        outcome = self.settled()
        if outcome is not None:
            self._tell = self._wait = None
            tell(outcome)
        elif self._wait is None and self._appended is not None:
            self._await_acknowledgement(self._appended)

    def _await_acknowledgement(self, appended: Appended) -> None:
        self._wait = self._replica.partition.wait_for(
            self._acks, appended.next_offset, _Acknowledgement(self)
        )


class _Acknowledgement:
    """What a partition takes for the future of who waits."""

    __slots__ = ("_append", "_is_done")

    def __init__(self, append: DirectAppend) -> None:
        self._append = append
        self._is_done = False

    def done(self) -> bool:
        """Whether the partition has answered."""
        return self._is_done

    def set_result(self, _: None) -> None:
        """All who have to have the batches have them."""
        self._is_done = True
        self._append.acknowledge()

    def set_exception(self, error: Exception) -> None:
        """They will not, as far as this leader can tell."""
        self._is_done = True
        self._append.set_exception(error)
