"""The leader's view of the replication progress of one peer, voter or observer.

probe: the leader searches for the offset at which the logs diverge. One request is in flight; its
    response or the next heartbeat's response decides.
replicate: requests are pipelined, up to the window.
snapshot: the peer's next entry is only in a snapshot. One chunk is in flight.

In state replicate the next heartbeat detects a lost request: the leader remembers the end of the
requests before each heartbeat and sends everything above the peer's received end again. In states
probe and snapshot the one request is retried after some timed heartbeats without a response. The
delay for a chunk doubles, since the chunk may be large, the link slow or the disk busy.
"""

from collections import deque
from enum import StrEnum
from typing import Final

from ..ids import Offset
from .log_view import SnapshotId


class ProgressState(StrEnum):
    """The replication mode of a peer."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


ROUNDS_MAX: Final = 64
"""The number of unanswered heartbeats per peer that are remembered, oldest first. Reads over a long
link send more heartbeats; these are not needed to detect a loss."""


RETRY_TICKS_MAX: Final = 64
"""The maximum number of timed heartbeats before a chunk is sent again; 6.4 s by default."""


class Progress:
    """The replication progress of one peer."""

    __slots__ = (
        "contact_ms",
        "inflight",
        "inflight_bytes",
        "is_waiting",
        "match_end",
        "next_offset",
        "position",
        "request_round",
        "request_tick",
        "restarts",
        "retry_ticks",
        "round_acked",
        "rounds",
        "sent_high_watermark",
        "snapshot",
        "state",
        "was_repeated",
    )

    def __init__(self, next_offset: Offset, now_ms: int) -> None:
        self.state = ProgressState.PROBE
        # Durable on the peer and equal to this node's log; 0 if unknown. match_end <= next_offset.
        self.match_end = Offset(0)
        self.next_offset = next_offset  # of the next request; a batch boundary of this node's log
        self.contact_ms = now_ms  # time of its last response in this epoch
        self.round_acked = 0  # newest heartbeat round with a response
        # Unanswered heartbeats, each with the end of the requests before it. A long link has many
        # in flight: remembering only the newest would detect no loss.
        self.rounds: deque[tuple[int, Offset]] = deque()
        self.sent_high_watermark = Offset(0)
        self.inflight: deque[tuple[Offset, int]] = deque()  # (end, bytes) sent, unacknowledged
        self.inflight_bytes = 0  # sum of the sizes in `inflight`
        # States probe and snapshot: the one request is in flight since heartbeat round
        # `request_round` and timed heartbeat `request_tick`. It is not sent again for `retry_ticks`
        # timed heartbeats. Rounds for reads are more frequent and do not count.
        self.is_waiting = False
        self.request_round = 0
        self.request_tick = 0
        self.retry_ticks = 1
        self.snapshot: SnapshotId | None = None  # set in state snapshot only
        self.position = 0  # of the next chunk in the snapshot
        self.was_repeated = False  # the chunk in flight is a repetition
        self.restarts = 0  # number of times the peer restarted the snapshot

    def become_probe(self, next_offset: Offset) -> None:
        """Enter state probe at the offset."""
        self._enter(ProgressState.PROBE)
        self.next_offset = max(next_offset, self.match_end)

    def become_replicate(self, received_end: Offset, *, unwritten_bytes: int = 0) -> None:
        """Enter state replicate: the logs match up to `received_end`. Received bytes that are not
        durable on the peer count into the window."""
        self._enter(ProgressState.REPLICATE)
        self.next_offset = max(received_end, self.match_end)
        if unwritten_bytes:
            self.inflight.append((received_end, unwritten_bytes))
            self.inflight_bytes = unwritten_bytes

    def become_snapshot(self, snapshot: SnapshotId) -> None:
        """Enter state snapshot and send the snapshot from its start."""
        self._enter(ProgressState.SNAPSHOT)
        self.snapshot = snapshot
        self.position = self.restarts = 0
        self.was_repeated = False

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.inflight.clear()
        self.inflight_bytes = 0
        self.rounds.clear()
        self.is_waiting, self.retry_ticks = False, 1
        self.snapshot = None

    def request_sent(self, *, number: int, tick: int) -> None:
        """Record the one request of states probe and snapshot, with the last heartbeat round and
        timed heartbeat."""
        self.is_waiting, self.request_round, self.request_tick = True, number, tick

    def allow_retry(self, *, number: int, tick: int) -> None:
        """Allow the one request again after a heartbeat round was answered.

        The request stays in flight if the heartbeat preceded it or if its response may still
        arrive.
        """
        if not self.is_waiting or number <= self.request_round:
            return
        if tick - self.request_tick < self.retry_ticks:
            return
        self.is_waiting = False
        if self.state is ProgressState.SNAPSHOT:
            self.was_repeated = True
            self.retry_ticks = min(2 * self.retry_ticks, RETRY_TICKS_MAX)

    def chunk_received(
        self, snapshot: SnapshotId, position: int, *, number: int, tick: int
    ) -> None:
        """Continue the snapshot at `position`.

        A duplicate response does not repeat the chunk in flight: each duplicate would double the
        traffic of the rest of the file. A peer that restarts the snapshot after a restart or a
        corrupt file waits, with exponential backoff: a permanently corrupt file would otherwise be
        sent in a loop.
        """
        if snapshot != self.snapshot or 0 < position < self.position:
            return  # an earlier response
        if position == self.position and self.is_waiting:
            return
        if position < self.position:
            self.position = 0
            self.restarts += 1
            self.retry_ticks = min(2**self.restarts, RETRY_TICKS_MAX)
            self.request_sent(number=number, tick=tick)
            return
        if not self.was_repeated:
            self.retry_ticks = max(1, self.retry_ticks // 2)
        self.position = position
        self.is_waiting = self.was_repeated = False

    def sent(self, end: Offset, size: int) -> None:
        """Record a sent request that ends at `end`."""
        self.inflight.append((end, size))
        self.inflight_bytes += size
        self.next_offset = end

    def is_full(self, *, requests_max: int, bytes_max: int) -> bool:
        """Return True if the window is full."""
        return len(self.inflight) >= requests_max or self.inflight_bytes >= bytes_max

    def acknowledge(self, match_end: Offset) -> bool:
        """Record that the peer's log is durable up to `match_end`. Return True if that is an
        advance."""
        while self.inflight and self.inflight[0][0] <= match_end:
            self.inflight_bytes -= self.inflight.popleft()[1]
        if match_end <= self.match_end:
            return False
        self.match_end = match_end
        self.next_offset = max(self.next_offset, match_end)
        return True

    def heartbeat_sent(self, number: int) -> None:
        """Remember the end of the requests that were sent before the heartbeat of this round."""
        if len(self.rounds) < ROUNDS_MAX:
            self.rounds.append((number, self.next_offset))

    def sent_before(self, number: int) -> Offset | None:
        """Return the end of the requests that were sent before the heartbeat of an answered round.

        Return None if it is unknown: the response is a duplicate, requests were sent again since,
        or too many heartbeats were unanswered to remember this one.
        """
        while self.rounds and self.rounds[0][0] < number:
            self.rounds.popleft()
        if self.rounds and self.rounds[0][0] == number:
            return self.rounds.popleft()[1]
        return None

    def rewind(self, received_end: Offset) -> None:
        """Send the requests above `received_end` again. Other responses to the same loss have no
        effect."""
        self.rounds.clear()
        while self.inflight and self.inflight[-1][0] > received_end:
            self.inflight_bytes -= self.inflight.pop()[1]
        self.next_offset = max(received_end, self.match_end)

    def check_invariants(self, end_offset: Offset) -> None:
        """Check the invariants of one peer; numbers as in docs/raft.md.

        3. match <= next <= the leader's log end, the window ends at most at next and counts its
        contents, and the snapshot is set only in state snapshot.
        """
        # 3. match <= next <= end; the window ends at most at next and counts its contents.
        assert self.match_end <= self.next_offset <= end_offset, (
            f"match {self.match_end}, next {self.next_offset}, end {end_offset}"
        )
        inflight = sum(size for _, size in self.inflight)
        assert self.inflight_bytes == inflight, f"{self.inflight_bytes}, {inflight}"
        window_end = self.inflight[-1][0] if self.inflight else 0
        assert window_end <= self.next_offset, f"window to {window_end}, next {self.next_offset}"
        has_snapshot = self.state is ProgressState.SNAPSHOT
        assert (self.snapshot is not None) == has_snapshot, f"{self.snapshot} in {self.state}"
