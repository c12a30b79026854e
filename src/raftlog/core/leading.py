"""The leader: appends, sends, counts what is durable where, and commits.

Its own disk is one of the quorum: it writes while it sends, and counts itself only up to its
fsynced end. Nothing commits before an entry of its own epoch does (Raft §5.4.2, figure 8). What is
to be sent is decided in one place, `fill`, once a round: so everything proposed in between shares
requests. `feeding.py` says what one peer gets.
"""

from collections import deque
from dataclasses import dataclass

from ...errors import NotController, Overloaded, VoterChangePending, VoterLagging, VoterNotFound
from ...ids import NodeId, Offset
from .feeding import feed
from .log_view import Entry, EntryKind
from .messages import (
    AppendRejected,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    Heartbeat,
    HeartbeatResponse,
    SnapshotResponse,
    TimeoutNow,
)
from .progress import Progress, ProgressState
from .reads import Reads
from .ready import HardState
from .replica import Replica
from .roles import RoleName, Trigger
from .voters import Voter, VoterSet


@dataclass(slots=True)
class Transfer:
    """A leadership that is being handed over."""

    to: Voter
    deadline_ms: int  # then it is given up
    was_told: bool = False


class Leader:
    """Leads its epoch."""

    name = RoleName.LEADER

    def __init__(self, replica: Replica, now_ms: int) -> None:
        """Open the epoch with a no-op: nothing older commits before it does.

        Voters that are known from formatting alone come into the log behind it: whoever joins later
        has no other way to learn of them.
        """
        assert replica.writes.durable_state == HardState(replica.epoch, replica.me), (
            "the own vote is not durable"
        )
        assert not replica.is_installing, "a leader never loads a snapshot"
        replica.reception = None
        self._replica = replica
        self.epoch_start_offset = replica.log.end_offset  # base offset of the no-op
        self.peers: dict[Voter, Progress] = {}  # voters but this node, and observers
        self.uncommitted: deque[tuple[Offset, int]] = deque()  # (next offset, size), in order
        self.uncommitted_bytes = 0  # always the sum of the sizes above
        self.transfer: Transfer | None = None
        self.is_dirty = True  # fill() may have something to send
        self._is_all_due = True  # to any peer; else to those that were heard of since
        self._due: dict[Voter, None] = {}  # in the order of their messages
        self._reads = Reads(reads_max=replica.config.reads_max)
        self._round = 0  # of the last heartbeat
        self._beats = 0  # how many of the rounds were due by time
        self._heartbeat_due_ms = now_ms
        self._sync_peers(now_ms)
        self._append(EntryKind.LEADER_CHANGE, 1, None, None)
        if replica.voters.latest_offset < 0:
            voters = replica.voters.latest
            if replica.is_alone and replica.config.address:
                voters = voters.moving(replica.me, replica.config.address)  # it needed none
            self._append(EntryKind.VOTERS, 1, None, voters)

    # --- proposals -----------------------------------------------------------------------------

    def propose(self, count: int, payload: bytes) -> Entry:
        """Append a batch of the own epoch; raises Overloaded, and nothing was appended then."""
        if self.transfer is not None:
            raise Overloaded("the leadership is being handed over: wait and repeat")
        limit = self._replica.config.uncommitted_bytes_max
        if self.uncommitted and self.uncommitted_bytes + len(payload) > limit:
            raise Overloaded(
                f"{self.uncommitted_bytes} bytes of proposals are uncommitted, the bound is"
                f" {limit}: wait and repeat"
            )
        return self._append(EntryKind.DATA, count, payload, None)

    def _append(
        self, kind: EntryKind, count: int, payload: bytes | None, voters: VoterSet | None
    ) -> Entry:
        replica = self._replica
        base_offset = replica.log.end_offset
        if payload is None:
            payload = replica.encode_control(kind, base_offset, replica.epoch, voters)
        entry = Entry(
            kind=kind,
            epoch=replica.epoch,
            base_offset=base_offset,
            count=count,
            payload=payload,
            voters=voters,
        )
        replica.append(entry)
        self.uncommitted.append((entry.next_offset, entry.size))
        self.uncommitted_bytes += entry.size
        self._all_due()
        return entry

    @property
    def has_committed(self) -> bool:
        """Whether an entry of its own epoch is committed: only then it knows what is."""
        return self._replica.high_watermark > self.epoch_start_offset

    # --- membership ----------------------------------------------------------------------------

    def change_voters(self, voters: VoterSet, now_ms: int) -> Entry:
        """Append a set that differs by one; in force at once (thesis 4.1).

        Raises VoterChangePending before the first commit of the own epoch (two leaders could
        otherwise change one set into two whose majorities miss each other) and while the last
        change is uncommitted; VoterLagging when no majority of the new set answers.
        """
        replica = self._replica
        if not self.has_committed:
            raise VoterChangePending(
                "this leader has committed nothing in its epoch yet: wait and repeat"
            )
        if replica.voters.latest_offset >= replica.high_watermark:
            raise VoterChangePending(
                f"the change of the voters at offset {replica.voters.latest_offset} is not"
                " committed yet: wait and repeat"
            )
        if self.transfer is not None:
            raise VoterChangePending("the leadership is being handed over: wait and repeat")
        self._check_majority_of(voters, now_ms)
        entry = self._append(EntryKind.VOTERS, 1, None, voters)
        self._sync_peers(now_ms)
        return entry

    def _check_majority_of(self, voters: VoterSet, now_ms: int) -> None:
        """Raises VoterLagging when the new set could not commit its own record, for want of voters
        that answer: nobody could take it back either."""
        silent = [voter for voter in voters if not self._is_heard(voter, now_ms)]
        if len(voters) - len(silent) >= voters.majority:
            return
        silence_ms = now_ms - self.peers[silent[0]].heard_ms
        raise VoterLagging(
            f"node {silent[0].node_id} has not answered for {silence_ms} ms and the changed voters"
            " could decide nothing without it: start it, or remove it first, and repeat"
        )

    def check_caught_up(self, voter: Voter) -> None:
        """Raises VoterLagging unless the observer holds the log but for what is under way."""
        replica = self._replica
        progress = self.peers.get(voter)
        if progress is None:
            raise VoterLagging(
                f"node {voter.node_id} with this directory id does not follow the metadata log:"
                " start it, let it catch up, and repeat"
            )
        bytes_max = replica.config.append_bytes_max
        start = max(progress.match_end, replica.log.start_offset)
        end, _ = replica.log.range_end(start, bytes_max=bytes_max)
        is_near = end == replica.log.end_offset or progress.match_end >= replica.high_watermark
        if progress.state is not ProgressState.REPLICATE or not is_near:
            behind = replica.log.end_offset - progress.match_end
            raise VoterLagging(
                f"node {voter.node_id} is {behind} offsets behind: let it catch up, and repeat"
            )

    def _sync_peers(self, now_ms: int) -> None:
        """Every other voter is a peer; who votes no longer goes on as an observer."""
        for voter in self._replica.other_voters():
            if voter not in self.peers:
                self.peers[voter] = Progress(self._replica.log.end_offset, now_ms)
        self._all_due()

    def on_follow_request(self, request: FollowRequest, now_ms: int) -> str:
        """Lead a node that asks for it; why not, "" when it is led."""
        progress = self.peers.get(request.sender)
        if progress is not None:
            progress.become_probe(progress.next_offset)
        else:
            observers_max = self._replica.config.observers_max
            if len(self.peers) - len(self._replica.other_voters()) >= observers_max:
                return f"{observers_max} observers follow already"
            progress = Progress(self._replica.log.end_offset, now_ms)
            self.peers[request.sender] = progress
        if request.sender not in self._replica.voters.latest:
            progress.heard_ms = now_ms  # a voter that asks for a leader supports none
        self._peer_due(request.sender)
        return ""

    # --- answers -------------------------------------------------------------------------------

    def on_append_response(self, response: AppendResponse, now_ms: int) -> Trigger | None:
        """Durable there; commits when that makes a majority."""
        progress = self._heard(response.sender, now_ms)
        if progress is None:
            return None
        after = self._acknowledge(progress, response.match_end)
        if progress.state is not ProgressState.REPLICATE:
            self._replicate_from(progress, response.received_end)
        return after

    def on_append_rejected(self, response: AppendRejected, now_ms: int) -> None:
        """The logs part below the place asked about: go back by whole epochs (Raft §5.3)."""
        progress = self._heard(response.sender, now_ms)
        if progress is None or response.prev.offset <= progress.match_end:
            return
        match progress.state:
            case ProgressState.SNAPSHOT:
                return
            case ProgressState.PROBE if response.prev.offset != progress.next_offset:
                return  # of an earlier question
            case ProgressState.PROBE | ProgressState.REPLICATE:
                progress.become_probe(self._parting(response))

    def _parting(self, response: AppendRejected) -> Offset:
        """The highest place below the one refused where the logs may agree."""
        log, hint = self._replica.log, response.hint
        own = log.end_offset_for(hint.epoch)
        place = min(own.offset, hint.offset, response.prev.offset - 1)
        if place < log.start_offset:
            return Offset(place)
        return log.boundary_at_or_below(Offset(place))

    def on_heartbeat_response(self, response: HeartbeatResponse, now_ms: int) -> Trigger | None:
        """The peer lives; find out what was lost on the way to it."""
        progress = self._heard(response.sender, now_ms)
        if progress is None:
            return None
        progress.round_acked = max(progress.round_acked, response.round)
        self._confirm_reads()
        after = None
        if response.match_end is not None:
            after = self._acknowledge(progress, response.match_end)
        if response.round > 0:
            self._find_losses(progress, response)
        return after

    def _find_losses(self, progress: Progress, response: HeartbeatResponse) -> None:
        received_end, sent_end = response.received_end, progress.sent_before(response.round)
        if progress.state is ProgressState.REPLICATE:
            if sent_end is None:
                return
            if received_end is None:
                progress.become_probe(progress.next_offset)  # it was started anew
            elif received_end < sent_end:
                progress.rewind(received_end)
        elif received_end is not None and self._can_replicate(progress, received_end):
            self._replicate_from(progress, received_end)
        else:
            progress.give_up_waiting(number=response.round, beat=self._beats)

    def _can_replicate(self, progress: Progress, received_end: Offset) -> bool:
        """Whether entries may follow: who gets a snapshot goes on with it while it is needed."""
        is_in_log = received_end >= self._replica.log.start_offset
        return is_in_log or progress.state is ProgressState.PROBE

    def _replicate_from(self, progress: Progress, received_end: Offset) -> None:
        """The peer's log is this one's up to `received_end`; what is durable of it was said
        before."""
        log = self._replica.log
        assert received_end <= log.end_offset, f"received {received_end}"
        unwritten_bytes = log.bytes_between(progress.match_end, received_end)
        progress.become_replicate(received_end, unwritten_bytes=unwritten_bytes)

    def on_snapshot_response(self, response: SnapshotResponse, now_ms: int) -> None:
        """Go on with the snapshot where the peer says."""
        progress = self._heard(response.sender, now_ms)
        if progress is not None:
            progress.piece_received(
                response.snapshot, response.position, number=self._round, beat=self._beats
            )

    def unreachable(self, peer: Voter) -> None:
        """What was sent may be lost; wait for an answer to a heartbeat before sending more."""
        progress = self.peers.get(peer)
        if progress is None:
            return
        if progress.state is ProgressState.REPLICATE:
            progress.become_probe(progress.match_end or progress.next_offset)
        progress.asked(number=self._round, beat=self._beats)
        progress.patience = 1

    def _heard(self, sender: Voter, now_ms: int) -> Progress | None:
        progress = self.peers.get(sender)
        if progress is not None:
            progress.heard_ms = now_ms
            self._peer_due(sender)
        return progress

    def _acknowledge(self, progress: Progress, match_end: Offset) -> Trigger | None:
        assert match_end <= self._replica.log.end_offset, f"acknowledged {match_end}"
        return self.maybe_commit() if progress.acknowledge(match_end) else None

    # --- commit --------------------------------------------------------------------------------

    def maybe_commit(self) -> Trigger | None:
        """Move the high watermark to what a majority holds durably, past the own no-op only.

        A leader that is no voter does not count itself, and goes once that is committed.
        """
        replica = self._replica
        voters = replica.voters.latest
        ends = sorted((self._match_end(voter) for voter in voters), reverse=True)
        end = ends[voters.majority - 1]
        if end <= self.epoch_start_offset or not replica.commit_to(end):
            return None
        while self.uncommitted and self.uncommitted[0][0] <= end:
            self.uncommitted_bytes -= self.uncommitted.popleft()[1]
        self._all_due()
        self._confirm_reads()
        if not replica.is_voter and replica.voters.latest_offset < replica.high_watermark:
            return Trigger.REMOVED
        return None

    def _match_end(self, voter: Voter) -> Offset:
        if voter == self._replica.me:
            return self._replica.writes.durable_end
        return self.peers[voter].match_end

    # --- reads ---------------------------------------------------------------------------------

    def read_index(self, context: int) -> None:
        """Take a read in; raises Overloaded."""
        self._reads.add(context)
        self.is_dirty = True

    def lose_reads(self) -> list[int]:
        """The leadership ends: the contexts of every unconfirmed read."""
        return self._reads.lose()

    def _confirm_reads(self) -> None:
        """Answer the reads whose round a majority has confirmed."""
        replica = self._replica
        if not self._reads.is_asked:
            return
        rounds = sorted(
            (
                self._round if voter == replica.me else self.peers[voter].round_acked
                for voter in replica.voters.latest
            ),
            reverse=True,
        )
        replica.reads.extend(self._reads.confirm(rounds[replica.voters.latest.majority - 1]))

    # --- handing over --------------------------------------------------------------------------

    def begin_transfer(self, to: NodeId | None, now_ms: int) -> None:
        """Hand the leadership to a voter, None: the best; raises VoterNotFound."""
        candidates = [v for v in self.successors(now_ms) if to is None or v.node_id == to]
        if not candidates:
            who = "another voter" if to is None else f"a voter with node id {to}"
            raise VoterNotFound(f"there is not {who} to hand the leadership to")
        deadline_ms = now_ms + self._replica.config.election_timeout_ms_min
        self.transfer = Transfer(candidates[0], deadline_ms)
        self.is_dirty = True

    def successors(self, now_ms: int) -> tuple[Voter, ...]:
        """The other voters, those that answer before the others, the one that holds most first."""

        def rank(voter: Voter) -> tuple[bool, int, Voter]:
            return not self._is_heard(voter, now_ms), -self.peers[voter].match_end, voter

        return tuple(sorted(self._replica.other_voters(), key=rank))

    def say_end(self, now_ms: int) -> None:
        """Tell every peer that this leadership is over and who should follow."""
        successors = self.successors(now_ms)
        for peer in self.peers:
            self._replica.send(
                EndEpoch(
                    sender=self._replica.me,
                    receiver=peer,
                    epoch=self._replica.epoch,
                    successors=successors,
                )
            )

    # --- time ----------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """When tick() has something to do."""
        if self.transfer is None:
            return self._heartbeat_due_ms
        return min(self._heartbeat_due_ms, self.transfer.deadline_ms)

    def tick(self, now_ms: int) -> Trigger | None:
        """Send heartbeats, give up a transfer, forget silent observers, look for the quorum."""
        if self.transfer is not None and now_ms >= self.transfer.deadline_ms:
            self.transfer = None
        if now_ms < self._heartbeat_due_ms:
            return None
        self._heartbeat_due_ms = now_ms + self._replica.config.heartbeat_ms
        self._beats += 1
        if not self._hears_quorum(now_ms):
            return Trigger.QUORUM_LOST
        self._send_round()
        self._visit_observers(now_ms)
        return None

    def _hears_quorum(self, now_ms: int) -> bool:
        """Check-quorum: whether a majority answered lately."""
        voters = self._replica.voters.latest
        heard = sum(1 for voter in voters if self._is_heard(voter, now_ms))
        return heard >= voters.majority

    def _is_heard(self, voter: Voter, now_ms: int) -> bool:
        """Whether a voter, this node included, answered lately."""
        if voter == self._replica.me:
            return True
        return now_ms - self.peers[voter].heard_ms < self._replica.config.quorum_timeout_ms

    def _send_round(self) -> None:
        """A heartbeat to every other voter."""
        self._round += 1
        for voter in self._replica.other_voters():
            self._beat(voter, self.peers[voter])
        if self._replica.is_alone:
            self._confirm_reads()

    def _visit_observers(self, now_ms: int) -> None:
        """A heartbeat to every observer but those that are silent: they are forgotten."""
        voters = set(self._replica.voters.latest)
        for peer, progress in list(self.peers.items()):
            if peer in voters:
                continue
            if now_ms - progress.heard_ms > self._replica.config.observer_timeout_ms:
                del self.peers[peer]
            else:
                self._beat(peer, progress)

    def _beat(self, peer: Voter, progress: Progress) -> None:
        """A heartbeat of the present round; what was sent before it is remembered with it."""
        progress.heartbeat_sent(self._round)
        self._tell(peer, progress, self._round)

    def _tell(self, peer: Voter, progress: Progress, number: int) -> None:
        replica = self._replica
        progress.told_high_watermark = replica.high_watermark
        replica.send(
            Heartbeat(
                sender=replica.me,
                receiver=peer,
                epoch=replica.epoch,
                high_watermark=replica.high_watermark,
                round=number,
            )
        )

    # --- sending -------------------------------------------------------------------------------

    def _all_due(self) -> None:
        """There is something for everybody."""
        self.is_dirty = self._is_all_due = True

    def _peer_due(self, peer: Voter) -> None:
        """A peer was heard of, it may take more: an observer's answer is no reason to look at a
        thousand others."""
        self._due[peer] = None
        self.is_dirty = True

    def fill(self) -> None:
        """Send what each peer has room for; begin a round for reads that wait."""
        due = self.peers
        if not self._is_all_due:
            due = {peer: self.peers[peer] for peer in self._due if peer in self.peers}
        self.is_dirty = self._is_all_due = False
        self._due.clear()
        for peer, progress in due.items():
            feed(self._replica, peer, progress, number=self._round, beat=self._beats)
            is_news = progress.told_high_watermark < self._replica.high_watermark
            if is_news and progress.state is ProgressState.REPLICATE:
                self._tell(peer, progress, 0)
        self._maybe_hand_over()
        if self._reads.wants_round and self.has_committed:
            self._reads.begin_round(self._round + 1, self._replica.high_watermark)
            self._send_round()

    def _maybe_hand_over(self) -> None:
        """Have the successor campaign once it holds everything (thesis 3.10)."""
        transfer, replica = self.transfer, self._replica
        if transfer is None or transfer.was_told:
            return
        progress = self.peers.get(transfer.to)
        if progress is not None and progress.match_end == replica.log.end_offset:
            transfer.was_told = True
            replica.send(TimeoutNow(sender=replica.me, receiver=transfer.to, epoch=replica.epoch))

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """What holds while leading; numbers as in docs/raft.md."""
        replica = self._replica
        # 1. A node leads only with its own durable vote in the epoch (election safety).
        assert replica.writes.durable_state == HardState(replica.epoch, replica.me)
        # 2. The leader's log ends in its epoch, which its no-op opened.
        assert replica.log.last_epoch == replica.epoch
        # 4. The bound on uncommitted bytes counts what is uncommitted.
        assert self.uncommitted_bytes == sum(size for _, size in self.uncommitted)
        for progress in self.peers.values():
            progress.check_invariants(replica.log.end_offset)


def not_leading(leader: Voter | None) -> NotController:
    """The error of who asks a node that does not lead."""
    if leader is None:
        return NotController("this node does not lead the metadata quorum")
    return NotController(
        f"this node does not lead the metadata quorum, node {leader.node_id} does",
        leader_id=leader.node_id,
    )
