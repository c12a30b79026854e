"""The leader: appends, replicates, tracks durable offsets and commits.

The leader's disk is one of the quorum: it writes while it sends, and counts itself only up to its
durable end. No entry is committed before an entry of the leader's own epoch is (Raft §5.4.2, figure
8). `send_due` runs once per round, so entries proposed between rounds share requests.
"""

from collections import deque
from dataclasses import dataclass

from ..errors import NotController, Overloaded, VoterChangePending, VoterLagging, VoterNotFound
from ..ids import NodeId, Offset
from .hard_state import HardState
from .log_view import Entry, EntryKind, LogEnd
from .messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    Heartbeat,
    HeartbeatResponse,
    SnapshotResponse,
    TimeoutNow,
)
from .progress import Progress, ProgressState
from .ready import ReadReady, SendChunk, SendEntries
from .roles import RoleName, Trigger
from .state import RaftState
from .voters import Voter, VoterAddition, VoterChange, VoterMove, VoterRemoval, VoterSet


class ReadIndexQueue:
    """The pending linearizable reads of one leadership (ReadIndex, thesis 6.4).

    A read is served at the leader's high watermark after a majority confirms the leadership by a
    heartbeat that was sent after the read was requested. Reads that arrive during a round share the
    next one. Until the leader commits an entry of its own epoch its high watermark may lag: reads
    wait.
    """

    __slots__ = ("_asked", "_count", "_reads_max", "_waiting")

    ROUNDS_MAX = 4  # rounds in flight; more do not reduce the latency

    def __init__(self, *, reads_max: int) -> None:
        self._reads_max = reads_max
        self._waiting: list[int] = []  # contexts without a round
        self._asked: deque[tuple[int, Offset, list[int]]] = deque()  # (round, offset, contexts)
        self._count = 0

    def add(self, context: int) -> None:
        """Queue a read. Raise Overloaded if too many are queued."""
        if self._count >= self._reads_max:
            raise Overloaded(
                f"metadata log: {self._count} reads wait for the quorum, the limit is"
                f" {self._reads_max}; retry later"
            )
        self._waiting.append(context)
        self._count += 1

    @property
    def has_round(self) -> bool:
        """Return True if a round is in flight."""
        return bool(self._asked)

    @property
    def wants_round(self) -> bool:
        """Return True if a heartbeat round should start."""
        return bool(self._waiting) and len(self._asked) < self.ROUNDS_MAX

    def begin_round(self, number: int, high_watermark: Offset) -> None:
        """Assign all queued reads to the round that is sent now."""
        self._asked.append((number, high_watermark, self._waiting))
        self._waiting = []

    def confirm(self, number: int) -> list[ReadReady]:
        """Return the reads of this round and of earlier ones, which a majority confirmed."""
        ready: list[ReadReady] = []
        while self._asked and self._asked[0][0] <= number:
            _, offset, contexts = self._asked.popleft()
            self._count -= len(contexts)
            ready.extend(ReadReady(context, offset) for context in contexts)
        return ready

    def lose(self) -> list[int]:
        """Remove and return every unconfirmed read at the end of the leadership."""
        lost = [context for _, _, contexts in self._asked for context in contexts]
        lost += self._waiting
        self._asked.clear()
        self._waiting, self._count = [], 0
        return lost


@dataclass(slots=True)
class Transfer:
    """A leadership transfer in progress."""

    to: Voter
    deadline_ms: int  # the transfer is abandoned at this time
    is_requested: bool = False


class Leader:
    """A node that leads its epoch."""

    name = RoleName.LEADER

    def __init__(self, state: RaftState, now_ms: int) -> None:
        """Open the epoch with a no-op entry: nothing older commits before it (Raft §8).

        A voter set that exists only from formatting is appended behind it: nodes that join later
        have no other source for it.
        """
        assert state.writes.durable_state == HardState(state.epoch, state.me), (
            f"epoch {state.epoch}: durable is {state.writes.durable_state}"
        )
        assert not state.is_installing, f"leader is installing {state.reception}"
        state.reception = None
        self._state = state
        self.epoch_start_offset = state.log.end_offset  # base offset of the no-op
        self.peers: dict[Voter, Progress] = {}  # all other voters, and observers
        self.uncommitted: deque[tuple[Offset, int]] = deque()  # (next offset, size), in order
        self.uncommitted_bytes = 0  # sum of the sizes in `uncommitted`
        self.transfer: Transfer | None = None
        self.has_unsent = True  # send_due() may have something to send
        self._are_all_due = True  # to any peer; otherwise only to the peers in `_due`
        self._due: dict[Voter, None] = {}  # peers with new responses, in order
        self._reads = ReadIndexQueue(reads_max=state.config.reads_max)
        self._round = 0  # number of the last heartbeat round
        self._ticks = 0  # number of rounds that were due by time
        self._heartbeat_due_ms = now_ms
        self._sync_peers(now_ms)
        self._append(EntryKind.LEADER_CHANGE, 1, None, None)
        if state.voters.latest_offset < 0:
            voters = state.voters.latest
            if state.is_alone and state.config.address:
                # formatted without an address
                voters = voters.moving(state.me, state.config.address)
            self._append(EntryKind.VOTERS, 1, None, voters)

    # --- proposals -----------------------------------------------------------------------------

    def propose(self, count: int, payload: bytes) -> Entry:
        """Append a batch in this epoch. If it raises Overloaded, nothing was appended."""
        if self.transfer is not None:
            raise Overloaded("metadata log: a leadership transfer is in progress; retry later")
        limit = self._state.config.uncommitted_bytes_max
        if self.uncommitted and self.uncommitted_bytes + len(payload) > limit:
            raise Overloaded(
                f"metadata log: {self.uncommitted_bytes} bytes of proposals are uncommitted, the"
                f" limit is {limit}; retry later"
            )
        return self._append(EntryKind.DATA, count, payload, None)

    def _append(
        self, kind: EntryKind, count: int, payload: bytes | None, voters: VoterSet | None
    ) -> Entry:
        state = self._state
        base_offset = state.log.end_offset
        if payload is None:
            payload = state.encode_control(kind, base_offset, state.epoch, voters)
        entry = Entry(
            kind=kind,
            epoch=state.epoch,
            base_offset=base_offset,
            count=count,
            payload=payload,
            voters=voters,
        )
        state.append(entry)
        self.uncommitted.append((entry.next_offset, entry.size))
        self.uncommitted_bytes += entry.size
        self._mark_all_due()
        return entry

    @property
    def _has_committed(self) -> bool:
        """Return True if an entry of this epoch is committed; only then the high watermark is
        current."""
        return self._state.high_watermark > self.epoch_start_offset

    # --- membership ----------------------------------------------------------------------------

    def change_voters(self, change: VoterChange, now_ms: int) -> Entry:
        """Append the changed voter set. It takes effect at once (thesis 4.1).

        Raise VoterChangePending before the first commit of this epoch: otherwise two leaders could
        change one set into two sets with disjoint majorities. Raise it also while the last change
        is uncommitted. Raise VoterLagging if an added voter is behind, or if no majority of the new
        set responds.
        """
        voters = self._changed_voters(change)
        state = self._state
        if not self._has_committed:
            raise VoterChangePending(
                f"voters: epoch {state.epoch} has no committed entry yet; retry later"
            )
        if state.voters.latest_offset >= state.high_watermark:
            raise VoterChangePending(
                f"voters: the change at offset {state.voters.latest_offset} is not committed yet;"
                " retry later"
            )
        if self.transfer is not None:
            raise VoterChangePending("voters: a leadership transfer is in progress; retry later")
        self._check_majority_responds(voters, now_ms)
        entry = self._append(EntryKind.VOTERS, 1, None, voters)
        self._sync_peers(now_ms)
        return entry

    def _changed_voters(self, change: VoterChange) -> VoterSet:
        """Return the changed set. Raise DuplicateVoter, VoterNotFound, VoterLagging or
        InvalidRequest."""
        state = self._state
        before = state.voters.latest
        match change:
            case VoterAddition(voter, address):
                voters = before.adding(voter, address)
                if state.me in voters and state.config.address:
                    voters = voters.moving(state.me, state.config.address)
                self._check_caught_up(voter)
                return voters
            case VoterRemoval(voter):
                return before.removing(voter)
            case VoterMove(voter, address):
                return before.moving(voter, address)

    def _check_majority_responds(self, voters: VoterSet, now_ms: int) -> None:
        """Raise VoterLagging if too few voters of the new set respond to commit its own record.
        Such a change could not be reverted either."""
        silent = [voter for voter in voters if not self._is_responsive(voter, now_ms)]
        if len(voters) - len(silent) >= voters.majority:
            return
        silence_ms = now_ms - self.peers[silent[0]].contact_ms
        raise VoterLagging(
            f"node {silent[0].node_id}: no response for {silence_ms} ms, and the changed voters"
            " have no majority without it; start it, or remove it first"
        )

    def _check_caught_up(self, voter: Voter) -> None:
        """Raise VoterLagging unless the observer's log is complete except for requests in
        flight."""
        state = self._state
        progress = self.peers.get(voter)
        if progress is None:
            raise VoterLagging(
                f"node {voter.node_id}: no node with this directory id follows the metadata log;"
                " start it and let it catch up"
            )
        bytes_max = state.config.append_bytes_max
        start = max(progress.match_end, state.log.start_offset)
        end, _ = state.log.range_end(start, bytes_max=bytes_max)
        is_near = end == state.log.end_offset or progress.match_end >= state.high_watermark
        if progress.state is not ProgressState.REPLICATE or not is_near:
            behind = state.log.end_offset - progress.match_end
            raise VoterLagging(
                f"node {voter.node_id}: the log is {behind} offsets behind; let it catch up"
            )

    def _sync_peers(self, now_ms: int) -> None:
        """Add every other voter as a peer. A removed voter stays a peer as an observer."""
        for voter in self._state.other_voters():
            if voter not in self.peers:
                self.peers[voter] = Progress(self._state.log.end_offset, now_ms)
        self._mark_all_due()

    def on_follow_request(self, request: FollowRequest, now_ms: int) -> str:
        """Start to replicate to a node that looks for its leader. Return a refusal, or ""."""
        progress = self.peers.get(request.sender)
        if progress is not None:
            progress.become_probe(progress.next_offset)
        else:
            observers_max = self._state.config.observers_max
            if len(self.peers) - len(self._state.other_voters()) >= observers_max:
                return f"{observers_max} observers follow, which is the limit"
            progress = Progress(self._state.log.end_offset, now_ms)
            self.peers[request.sender] = progress
        if request.sender not in self._state.voters.latest:
            # a voter that looks for a leader does not count for check-quorum
            progress.contact_ms = now_ms
        self._mark_due(request.sender)
        return ""

    # --- responses -----------------------------------------------------------------------------

    def on_response(
        self,
        response: AppendResponse | AppendRejected | HeartbeatResponse | SnapshotResponse,
        now_ms: int,
    ) -> Trigger | None:
        """Process the response of a peer."""
        match response:
            case AppendResponse():
                return self._on_append_response(response, now_ms)
            case AppendRejected():
                self._on_append_rejected(response, now_ms)
            case HeartbeatResponse():
                return self._on_heartbeat_response(response, now_ms)
            case SnapshotResponse():
                self._on_snapshot_response(response, now_ms)
        return None

    def _on_append_response(self, response: AppendResponse, now_ms: int) -> Trigger | None:
        """Record the durable end of a peer, and commit if that makes a majority."""
        progress = self._record_response(response.sender, now_ms)
        if progress is None:
            return None
        after = self._acknowledge(progress, response.match_end)
        if progress.state is not ProgressState.REPLICATE:
            self._replicate_from(progress, response.received_end)
        return after

    def _on_append_rejected(self, response: AppendRejected, now_ms: int) -> None:
        """Probe at a lower offset, skipping whole epochs (Raft §5.3)."""
        progress = self._record_response(response.sender, now_ms)
        if progress is None or response.prev.offset <= progress.match_end:
            return
        match progress.state:
            case ProgressState.SNAPSHOT:
                # sometimes: a follower rejects entries while a snapshot is sent to it
                return
            case ProgressState.PROBE if response.prev.offset != progress.next_offset:
                # sometimes: the response to an earlier probe arrives
                return  # the response to an earlier probe
            case ProgressState.PROBE | ProgressState.REPLICATE:
                progress.become_probe(self._next_probe_offset(response))

    def _next_probe_offset(self, response: AppendRejected) -> Offset:
        """Return the highest offset below the rejected one where the logs may match."""
        log, hint = self._state.log, response.hint
        own = log.end_offset_for(hint.epoch)
        place = min(own.offset, hint.offset, response.prev.offset - 1)
        if place < log.start_offset:
            # sometimes: a follower diverges below the leader's log start
            return Offset(place)
        return log.boundary_at_or_below(Offset(place))

    def _on_heartbeat_response(self, response: HeartbeatResponse, now_ms: int) -> Trigger | None:
        """Record that the peer is alive, and detect lost requests."""
        progress = self._record_response(response.sender, now_ms)
        if progress is None:
            return None
        progress.round_acked = max(progress.round_acked, response.round)
        self._confirm_reads()
        after = None
        if response.match_end is not None:
            after = self._acknowledge(progress, response.match_end)
        if response.round > 0:
            self._detect_loss(progress, response)
        return after

    def _detect_loss(self, progress: Progress, response: HeartbeatResponse) -> None:
        received_end, sent_end = response.received_end, progress.sent_before(response.round)
        if progress.state is ProgressState.REPLICATE:
            if sent_end is None:
                return
            if received_end is None:
                # sometimes: a follower restarted between two requests of its leader
                progress.become_probe(progress.next_offset)  # the peer restarted
            elif received_end < sent_end:
                # sometimes: a request to a follower was lost
                progress.rewind(received_end)
        elif received_end is not None and self._can_replicate(progress, received_end):
            self._replicate_from(progress, received_end)
        else:
            progress.allow_retry(number=response.round, tick=self._ticks)

    def _can_replicate(self, progress: Progress, received_end: Offset) -> bool:
        """Return True if entries may be sent. A peer in state snapshot stays there while it needs
        one."""
        is_in_log = received_end >= self._state.log.start_offset
        return is_in_log or progress.state is ProgressState.PROBE

    def _replicate_from(self, progress: Progress, received_end: Offset) -> None:
        """Replicate from `received_end`, up to which the logs match. The durable part is recorded
        already."""
        log = self._state.log
        assert received_end <= log.end_offset, f"received {received_end}"
        unwritten_bytes = log.bytes_between(progress.match_end, received_end)
        progress.become_replicate(received_end, unwritten_bytes=unwritten_bytes)

    def _on_snapshot_response(self, response: SnapshotResponse, now_ms: int) -> None:
        """Continue the snapshot at the position that the peer reports."""
        progress = self._record_response(response.sender, now_ms)
        if progress is not None:
            progress.chunk_received(
                response.snapshot, response.position, number=self._round, tick=self._ticks
            )

    def unreachable(self, peer: Voter) -> None:
        """Assume that requests in flight are lost. Send no more before a heartbeat is answered."""
        progress = self.peers.get(peer)
        if progress is None:
            return
        if progress.state is ProgressState.REPLICATE:
            progress.become_probe(progress.match_end or progress.next_offset)
        progress.request_sent(number=self._round, tick=self._ticks)
        progress.retry_ticks = 1

    def _record_response(self, sender: Voter, now_ms: int) -> Progress | None:
        progress = self.peers.get(sender)
        if progress is not None:
            progress.contact_ms = now_ms
            self._mark_due(sender)
        return progress

    def _acknowledge(self, progress: Progress, match_end: Offset) -> Trigger | None:
        assert match_end <= self._state.log.end_offset, f"acknowledged {match_end}"
        return self.maybe_commit() if progress.acknowledge(match_end) else None

    # --- commit --------------------------------------------------------------------------------

    def maybe_commit(self) -> Trigger | None:
        """Advance the high watermark to the offset that is durable on a majority, if above the
        no-op.

        A leader that is not a voter does not count itself. It resigns when its removal is
        committed.
        """
        state = self._state
        voters = state.voters.latest
        ends = sorted((self._match_end(voter) for voter in voters), reverse=True)
        end = ends[voters.majority - 1]
        if end <= self.epoch_start_offset or not state.commit_to(end):
            return None
        while self.uncommitted and self.uncommitted[0][0] <= end:
            self.uncommitted_bytes -= self.uncommitted.popleft()[1]
        self._mark_all_due()
        self._confirm_reads()
        if not state.is_voter and state.voters.latest_offset < state.high_watermark:
            # sometimes: a leader commits its own removal
            return Trigger.REMOVED
        return None

    def _match_end(self, voter: Voter) -> Offset:
        if voter == self._state.me:
            return self._state.writes.durable_end
        return self.peers[voter].match_end

    # --- reads ---------------------------------------------------------------------------------

    def read_index(self, context: int) -> None:
        """Queue a read. Raise Overloaded if too many are queued."""
        self._reads.add(context)
        self.has_unsent = True

    def fail_reads(self) -> list[int]:
        """End this leadership's reads. Return the contexts of the unconfirmed ones."""
        return self._reads.lose()

    def _confirm_reads(self) -> None:
        """Release the reads whose round a majority has confirmed."""
        state = self._state
        if not self._reads.has_round:
            return
        rounds = sorted(
            (
                self._round if voter == state.me else self.peers[voter].round_acked
                for voter in state.voters.latest
            ),
            reverse=True,
        )
        state.output.reads.extend(self._reads.confirm(rounds[state.voters.latest.majority - 1]))

    # --- transfer ------------------------------------------------------------------------------

    def begin_transfer(self, to: NodeId | None, now_ms: int) -> None:
        """Start a transfer to the voter, or to the most up-to-date one if None. Raise
        VoterNotFound."""
        candidates = [v for v in self._successors(now_ms) if to is None or v.node_id == to]
        if not candidates:
            wanted = "the quorum has no other voter" if to is None else f"node {to} is not a voter"
            raise VoterNotFound(f"leadership transfer: {wanted}")
        deadline_ms = now_ms + self._state.config.election_timeout_ms_min
        self.transfer = Transfer(candidates[0], deadline_ms)
        self.has_unsent = True

    def _successors(self, now_ms: int) -> tuple[Voter, ...]:
        """Return the other voters, responsive ones first, then by descending match end."""

        def rank(voter: Voter) -> tuple[bool, int, Voter]:
            return not self._is_responsive(voter, now_ms), -self.peers[voter].match_end, voter

        return tuple(sorted(self._state.other_voters(), key=rank))

    def announce_end(self, now_ms: int) -> None:
        """Announce the end of this leadership and its preferred successors to every peer."""
        successors = self._successors(now_ms)
        for peer in self.peers:
            self._state.output.send(
                EndEpoch(
                    sender=self._state.me,
                    receiver=peer,
                    epoch=self._state.epoch,
                    successors=successors,
                )
            )

    # --- time ----------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """The time at which tick() has work."""
        if self.transfer is None:
            return self._heartbeat_due_ms
        return min(self._heartbeat_due_ms, self.transfer.deadline_ms)

    def tick(self, now_ms: int) -> Trigger | None:
        """Send heartbeats, abandon an expired transfer, drop silent observers and check the
        quorum."""
        if self.transfer is not None and now_ms >= self.transfer.deadline_ms:
            # sometimes: a leadership transfer times out
            self.transfer = None
        if now_ms < self._heartbeat_due_ms:
            return None
        self._heartbeat_due_ms = now_ms + self._state.config.heartbeat_ms
        self._ticks += 1
        if not self._has_quorum(now_ms):
            # sometimes if self.uncommitted: a leader without a quorum has uncommitted entries
            return Trigger.QUORUM_LOST
        self._send_round()
        self._send_to_observers(now_ms)
        return None

    def _has_quorum(self, now_ms: int) -> bool:
        """Return True if a majority responded within the quorum timeout (check-quorum)."""
        voters = self._state.voters.latest
        heard = sum(1 for voter in voters if self._is_responsive(voter, now_ms))
        return heard >= voters.majority

    def _is_responsive(self, voter: Voter, now_ms: int) -> bool:
        """Return True if a voter responded within the quorum timeout. True for this node."""
        if voter == self._state.me:
            return True
        return now_ms - self.peers[voter].contact_ms < self._state.config.quorum_timeout_ms

    def _send_round(self) -> None:
        """Send a heartbeat to every other voter."""
        self._round += 1
        for voter in self._state.other_voters():
            self._send_round_heartbeat(voter, self.peers[voter])
        if self._state.is_alone:
            self._confirm_reads()

    def _send_to_observers(self, now_ms: int) -> None:
        """Send a heartbeat to every observer, except silent ones, which are dropped."""
        voters = set(self._state.voters.latest)
        for peer, progress in list(self.peers.items()):
            if peer in voters:
                continue
            if now_ms - progress.contact_ms > self._state.config.observer_timeout_ms:
                del self.peers[peer]
            else:
                self._send_round_heartbeat(peer, progress)

    def _send_round_heartbeat(self, peer: Voter, progress: Progress) -> None:
        """Send a heartbeat of the current round and remember the requests that precede it."""
        progress.heartbeat_sent(self._round)
        self._send_heartbeat(peer, progress, self._round)

    def _send_heartbeat(self, peer: Voter, progress: Progress, number: int) -> None:
        state = self._state
        progress.sent_high_watermark = state.high_watermark
        state.output.send(
            Heartbeat(
                sender=state.me,
                receiver=peer,
                epoch=state.epoch,
                high_watermark=state.high_watermark,
                round=number,
            )
        )

    # --- sending -------------------------------------------------------------------------------

    def _mark_all_due(self) -> None:
        """Mark every peer as due."""
        self.has_unsent = self._are_all_due = True

    def _mark_due(self, peer: Voter) -> None:
        """Mark one peer as due after its response. One observer's response must not cost a visit to
        all peers."""
        self._due[peer] = None
        self.has_unsent = True

    def send_due(self) -> None:
        """Send the requests that each peer's window allows. Start a round for queued reads."""
        due = self.peers
        if not self._are_all_due:
            due = {peer: self.peers[peer] for peer in self._due if peer in self.peers}
        self.has_unsent = self._are_all_due = False
        self._due.clear()
        for peer, progress in due.items():
            send_append(self._state, peer, progress, number=self._round, tick=self._ticks)
            is_news = progress.sent_high_watermark < self._state.high_watermark
            if is_news and progress.state is ProgressState.REPLICATE:
                self._send_heartbeat(peer, progress, 0)
        self._maybe_transfer()
        if self._reads.wants_round and self._has_committed:
            self._reads.begin_round(self._round + 1, self._state.high_watermark)
            self._send_round()

    def _maybe_transfer(self) -> None:
        """Ask the successor to campaign once its log is complete (thesis 3.10)."""
        transfer, state = self.transfer, self._state
        if transfer is None or transfer.is_requested:
            return
        progress = self.peers.get(transfer.to)
        if progress is not None and progress.match_end == state.log.end_offset:
            # sometimes: a leadership is transferred to a complete follower
            transfer.is_requested = True
            state.output.send(TimeoutNow(sender=state.me, receiver=transfer.to, epoch=state.epoch))

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check the invariants of a leader; numbers as in docs/raft.md.

        1. A node leads only with its own durable vote in the epoch.
        2. The leader's log ends in its epoch.
        3. The invariant of each peer, see `Progress.check_invariants`.
        4. The count of uncommitted bytes is the sum of the uncommitted sizes.
        """
        state = self._state
        # 1. A node leads only with its own durable vote in the epoch (election safety).
        assert state.writes.durable_state == HardState(state.epoch, state.me), (
            f"{state.writes.durable_state} in epoch {state.epoch}"
        )
        # 2. The leader's log ends in its epoch, which its no-op opened.
        assert state.log.last_epoch == state.epoch, f"{state.log.last_epoch} in {state.epoch}"
        # 4. The count of uncommitted bytes is the sum of the uncommitted sizes.
        uncommitted = sum(size for _, size in self.uncommitted)
        assert self.uncommitted_bytes == uncommitted, f"{self.uncommitted_bytes}, {uncommitted}"
        for progress in self.peers.values():
            progress.check_invariants(state.log.end_offset)


def not_leader_error(leader: Voter | None) -> NotController:
    """Return the error for a request that only the leader can execute."""
    if leader is None:
        return NotController(
            "metadata quorum: this node is not the leader, and none is known; retry later"
        )
    return NotController(
        f"metadata quorum: this node is not the leader; node {leader.node_id} is",
        leader_id=leader.node_id,
    )


def send_append(
    state: RaftState, peer: Voter, progress: Progress, *, number: int, tick: int
) -> None:
    """Send the requests that the peer's window allows, after this heartbeat round and tick."""
    if progress.is_waiting:
        return  # the one request of states probe and snapshot is in flight
    if progress.state is not ProgressState.SNAPSHOT:
        if progress.next_offset >= state.log.start_offset:
            if progress.state is ProgressState.REPLICATE:
                _send_entries(state, peer, progress)
            else:
                progress.request_sent(number=number, tick=tick)
                _send_probe(state, peer, progress)
            return
        assert state.snapshots, f"log start {state.log.start_offset} without a snapshot"
    if progress.snapshot not in state.snapshots:
        # sometimes if progress.snapshot is not None: the snapshot of a follower was removed
        progress.become_snapshot(state.snapshots[-1])
    progress.request_sent(number=number, tick=tick)
    _send_chunk(state, peer, progress)


def _send_probe(state: RaftState, peer: Voter, progress: Progress) -> None:
    """Send a probe: an append request without entries, which the peer may reject."""
    state.output.send(
        AppendRequest(
            sender=state.me,
            receiver=peer,
            epoch=state.epoch,
            prev=_log_end_at(state, progress.next_offset),
            entries=(),
            high_watermark=state.high_watermark,
        )
    )


def _send_entries(state: RaftState, peer: Voter, progress: Progress) -> None:
    """Send requests one after the other without waiting for responses."""
    config = state.config
    while progress.next_offset < state.log.end_offset and not progress.is_full(
        requests_max=config.inflight_requests_max, bytes_max=config.inflight_bytes_max
    ):
        start = progress.next_offset
        end, size = state.log.range_end(start, bytes_max=config.append_bytes_max)
        progress.sent(end, size)
        progress.sent_high_watermark = state.high_watermark
        state.output.send(
            SendEntries(
                receiver=peer,
                epoch=state.epoch,
                prev=_log_end_at(state, start),
                end=end,
                high_watermark=state.high_watermark,
            )
        )


def _send_chunk(state: RaftState, peer: Voter, progress: Progress) -> None:
    """Send the snapshot chunk at the peer's position."""
    assert progress.snapshot is not None, "no snapshot in state snapshot"
    state.output.send(
        SendChunk(
            receiver=peer,
            epoch=state.epoch,
            snapshot=progress.snapshot,
            voters=state.voters.at(progress.snapshot.end_offset),
            position=progress.position,
            bytes_max=state.config.snapshot_chunk_bytes,
        )
    )


def _log_end_at(state: RaftState, offset: Offset) -> LogEnd:
    return LogEnd(state.log.epoch_before(offset), offset)
