"""What a leader knows of one peer, voter or observer, in its own epoch.

probe: the leader does not know where the logs part; one request is out, its answer or the next
heartbeat's decides. replicate: requests are sent without waiting, up to the window. snapshot: the
peer's next entry is in a snapshot only; one piece is out.

A lost request is found by the next heartbeat: what was sent before it is remembered, its answer
says what was received, and the difference is sent again. Of the one request of probe and snapshot
no heartbeat's answer tells: it is sent again when the peer lives and has said nothing for some
time, longer each time for a piece of a snapshot. It may be large, its link slow, its disk busy.
"""

from collections import deque
from enum import StrEnum
from typing import Final

from ...ids import Offset
from .log_view import SnapshotId


class ProgressState(StrEnum):
    """How a peer is sent to."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


ROUNDS_MAX: Final = 64
"""Heartbeats to a peer that are remembered, the oldest ones: of those that are sent while so many
are unanswered, as for reads over a long link, none is needed to find a loss."""


PATIENCE_MAX: Final = 64
"""Timed heartbeats until a piece of a snapshot is sent again, at most; 6.4 s with the default."""


class Progress:
    """One peer."""

    __slots__ = (
        "asked_beat",
        "asked_round",
        "heard_ms",
        "inflight",
        "inflight_bytes",
        "is_waiting",
        "match_end",
        "next_offset",
        "patience",
        "position",
        "restarts",
        "round_acked",
        "rounds",
        "snapshot",
        "state",
        "told_high_watermark",
        "was_repeated",
    )

    def __init__(self, next_offset: Offset, now_ms: int) -> None:
        self.state = ProgressState.PROBE
        # Durable on the peer and equal to the own log; 0: nothing known. match_end <= next_offset.
        self.match_end = Offset(0)
        self.next_offset = next_offset  # of the next request, a batch boundary of the own log
        self.heard_ms = now_ms  # when it last answered in this epoch
        self.round_acked = 0  # newest heartbeat round that it answered
        # Heartbeats that are not answered yet, each with where requests stood before it. On a long
        # link many are under way: the answer to the newest alone would never come in time.
        self.rounds: deque[tuple[int, Offset]] = deque()
        self.told_high_watermark = Offset(0)
        self.inflight: deque[tuple[Offset, int]] = deque()  # (end, bytes) sent, unacknowledged
        self.inflight_bytes = 0  # always the sum
        # probe and snapshot: the one request is out, since this heartbeat round and this timed
        # heartbeat (rounds for reads are many more), and is not sent again for `patience` of those.
        self.is_waiting = False
        self.asked_round = 0
        self.asked_beat = 0
        self.patience = 1
        self.snapshot: SnapshotId | None = None  # in state snapshot alone
        self.position = 0  # of the next piece in it
        self.was_repeated = False  # the piece that is out was sent before
        self.restarts = 0  # how often the peer began the snapshot anew

    def become_probe(self, next_offset: Offset) -> None:
        """Look for the place where the logs part."""
        self._enter(ProgressState.PROBE)
        self.next_offset = max(next_offset, self.match_end)

    def become_replicate(self, received_end: Offset, *, unwritten_bytes: int = 0) -> None:
        """The peer's log is the own one up to here: send on from there. Bytes that are not durable
        there yet are in its memory, hence in the window."""
        self._enter(ProgressState.REPLICATE)
        self.next_offset = max(received_end, self.match_end)
        if unwritten_bytes:
            self.inflight.append((received_end, unwritten_bytes))
            self.inflight_bytes = unwritten_bytes

    def become_snapshot(self, snapshot: SnapshotId) -> None:
        """Send the snapshot, from its start or from where the peer says."""
        self._enter(ProgressState.SNAPSHOT)
        self.snapshot = snapshot
        self.position = self.restarts = 0
        self.was_repeated = False

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.inflight.clear()
        self.inflight_bytes = 0
        self.rounds.clear()
        self.is_waiting, self.patience = False, 1
        self.snapshot = None

    def asked(self, *, number: int, beat: int) -> None:
        """The one request of probe and snapshot leaves, behind this round and timed heartbeat."""
        self.is_waiting, self.asked_round, self.asked_beat = True, number, beat

    def give_up_waiting(self, *, number: int, beat: int) -> None:
        """The heartbeat of a round was answered: the one request may be sent again, unless the
        heartbeat was sent before it or the answer to it may yet come."""
        if not self.is_waiting or number <= self.asked_round:
            return
        if beat - self.asked_beat < self.patience:
            return
        self.is_waiting = False
        if self.state is ProgressState.SNAPSHOT:
            self.was_repeated = True
            self.patience = min(2 * self.patience, PATIENCE_MAX)

    def piece_received(
        self, snapshot: SnapshotId, position: int, *, number: int, beat: int
    ) -> None:
        """The peer goes on with the snapshot at `position`.

        The piece that is out already is not sent again because an answer came twice: each such
        pair would make another one for the rest of the file. A peer that begins anew, since it was
        restarted or the file proved bad, waits a little, longer each time: one that is damaged for
        good would be sent round and round.
        """
        if snapshot != self.snapshot or 0 < position < self.position:
            return  # an earlier answer
        if position == self.position and self.is_waiting:
            return
        if position < self.position:
            self.position = 0
            self.restarts += 1
            self.patience = min(2**self.restarts, PATIENCE_MAX)
            self.asked(number=number, beat=beat)
            return
        if not self.was_repeated:
            self.patience = max(1, self.patience // 2)
        self.position = position
        self.is_waiting = self.was_repeated = False

    def sent(self, end: Offset, size: int) -> None:
        """A request up to `end` is on its way."""
        self.inflight.append((end, size))
        self.inflight_bytes += size
        self.next_offset = end

    def is_full(self, *, requests_max: int, bytes_max: int) -> bool:
        """Whether the window has no room."""
        return len(self.inflight) >= requests_max or self.inflight_bytes >= bytes_max

    def acknowledge(self, match_end: Offset) -> bool:
        """Durable there up to `match_end`; whether that is news."""
        while self.inflight and self.inflight[0][0] <= match_end:
            self.inflight_bytes -= self.inflight.popleft()[1]
        if match_end <= self.match_end:
            return False
        self.match_end = match_end
        self.next_offset = max(self.next_offset, match_end)
        return True

    def heartbeat_sent(self, number: int) -> None:
        """The heartbeat of a round follows the requests that were sent until now."""
        if len(self.rounds) < ROUNDS_MAX:
            self.rounds.append((number, self.next_offset))

    def sent_before(self, number: int) -> Offset | None:
        """Where requests stood before the heartbeat of a round that is answered now; None: the
        answer tells nothing: it is not the first one, requests were sent again since, or too many
        heartbeats were unanswered to remember this one."""
        while self.rounds and self.rounds[0][0] < number:
            self.rounds.popleft()
        if self.rounds and self.rounds[0][0] == number:
            return self.rounds.popleft()[1]
        return None

    def rewind(self, received_end: Offset) -> None:
        """What was sent above `received_end` did not arrive: send it again, once for all the
        answers that tell of it."""
        self.rounds.clear()
        while self.inflight and self.inflight[-1][0] > received_end:
            self.inflight_bytes -= self.inflight.pop()[1]
        self.next_offset = max(received_end, self.match_end)

    def check_invariants(self, end_offset: Offset) -> None:
        """What holds of a peer; the number as in docs/raft.md."""
        # 3. match <= next <= end; the window counts what it holds.
        assert self.match_end <= self.next_offset <= end_offset, f"{self.match_end} {end_offset}"
        assert self.inflight_bytes == sum(size for _, size in self.inflight)
        assert (self.snapshot is not None) == (self.state is ProgressState.SNAPSHOT)
