"""The consensus core: messages, time and proposals in, `Ready` out; no I/O, no clock.

Owns epoch, vote, role, high watermark and the view of the log. Knows nothing of files, networks or
of what a proposal means. One door in (`step`, `tick`, `propose`), one door out (`ready`), and two
answers that acknowledgements hang on (`persisted`, `applied`).

Source: Raft (Ongaro, Ousterhout 2014), dissertation 9.6 (pre-vote), KIP-595 (offsets as indexes,
epoch as term). An entry is a record batch; a log end offset is exclusive.

What counts as durable: the leader counts itself, one voter alone included, only up to the offset
whose fsync was reported by persisted(); its own vote only after the hard state was. A restarted
node never resumes a leadership: it starts unattached in its last epoch (KAFKA-10527).

Built here: elections among any number of voters and everything a lone voter needs. Replication to
other voters is not, hence the shell refuses a quorum of more than one.
"""

from dataclasses import replace

from ..errors import NotController, Overloaded
from ..ids import NO_NODE, Epoch, NodeId, Offset
from ..runtime import Entropy
from .config import RaftConfig
from .log_view import Entry, EntryKind, LogView
from .messages import LogEnd, Message, VoteRequest, VoteResponse
from .ready import Committed, Event, HardState, MessageDropped, Ready, RoleChanged, Token
from .roles import (
    Candidate,
    Follower,
    Leader,
    PreCandidate,
    Role,
    Trigger,
    Unattached,
    leader_of,
    next_role,
    role_name,
)


class Raft:
    """One voter of the quorum."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        hard_state: HardState,
        entropy: Entropy,
        *,
        now_ms: int,
    ) -> None:
        """Start from what is durable: every batch of `log` and `hard_state` must be."""
        assert config.is_voter, f"{config.me} is no voter"
        assert hard_state.epoch >= log.last_epoch, f"{hard_state.epoch} < {log.last_epoch}"
        self.config = config
        self.log = log
        self.epoch = hard_state.epoch
        self.vote = hard_state.vote
        # Everything below is committed. It is not persisted: after a restart it grows from the
        # log's start again, with the first commit of the new epoch.
        self.high_watermark = log.start_offset
        self.applied_end = log.start_offset  # everything below was applied by the caller
        self._entropy = entropy
        self._durable_state = hard_state
        self._durable_end = log.end_offset  # end of what persisted() has confirmed
        self._write: _Write | None = None  # the write in flight
        self._last_token = Token(0)
        self._append: list[Entry] = []  # in the view, not yet handed out for writing
        self._messages_now: list[Message] = []
        self._messages_after: list[Message] = []
        self._events: list[Event] = []
        self._committed_out = log.start_offset  # end of what was handed out as committed
        self.role: Role = Unattached(deadline_ms=self._first_deadline_ms(now_ms))

    # --- in ------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the present epoch, if known."""
        return leader_of(self.role, me=self.config.me)

    @property
    def log_end(self) -> LogEnd:
        """How far this node's log reaches, written or not."""
        return LogEnd(self.log.last_epoch, self.log.end_offset)

    def tick(self, now_ms: int) -> None:
        """Let time pass: campaign when the election timer has run out."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._become_pre_candidate(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When tick() has something to do next; None: not before something else happens."""
        match self.role:
            case Leader():
                return None
            case Unattached() | Follower() | PreCandidate() | Candidate():
                return self.role.deadline_ms

    def step(self, message: Message, now_ms: int) -> None:
        """Take in a message. One that is not for this voter, or not of its quorum, is dropped:
        a wiped disk under an old id is a stranger (KIP-853)."""
        if message.receiver != self.config.me:
            self._drop(message, f"it is for {message.receiver}")
            return
        if message.sender not in self.config.voters or message.sender == self.config.me:
            self._drop(message, "its sender is no other voter of this quorum")
            return
        if message.epoch > self.epoch:
            self._become_unattached(Trigger.NEWER_EPOCH, message.epoch, now_ms)
        match message:
            case VoteRequest(pre_vote=True):
                self._handle_pre_vote_request(message)
            case VoteRequest():
                self._handle_vote_request(message, now_ms)
            case VoteResponse():
                self._handle_vote_response(message, now_ms)

    def propose(self, *, count: int, payload: bytes) -> Entry:
        """Append one batch in the own epoch and return where it goes; it is committed once
        Ready.committed passes it.

        Raises NotController unless this node leads, Overloaded when too many bytes are
        uncommitted (nothing was appended then).
        """
        assert count >= 1, f"a batch of {count} records"
        role = self.role
        if not isinstance(role, Leader):
            leader_id = self.leader_id
            raise NotController(
                "this node does not lead the metadata quorum",
                leader_id=NO_NODE if leader_id is None else leader_id,
            )
        limit = self.config.uncommitted_bytes_max
        if role.uncommitted and role.uncommitted_bytes + len(payload) > limit:
            raise Overloaded(
                f"{role.uncommitted_bytes} bytes of proposals are uncommitted, the bound is"
                f" {limit}: wait and repeat"
            )
        return self._append_entry(role, EntryKind.DATA, count, payload)

    def resign(self, now_ms: int) -> None:
        """Give up a leadership, for an orderly stop. What is uncommitted may yet be committed by
        a successor."""
        if isinstance(self.role, Leader):
            self._become_unattached(Trigger.RESIGNED, self.epoch, now_ms)

    # --- out -----------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """Whether ready() would carry anything."""
        now = self._messages_now or self._events or self._committed_out < self.high_watermark
        return bool(now) or (self._write is None and self._has_write())

    def ready(self) -> Ready:
        """Hand out what is to be done next; see `Ready` for the order."""
        write = None
        messages_after: tuple[Message, ...] = ()
        if self._write is None and self._has_write():
            write = self._begin_write()
            messages_after = tuple(self._messages_after)
            self._messages_after.clear()
        committed = None
        if self._committed_out < self.high_watermark:
            committed = Committed(start=self._committed_out, end=self.high_watermark)
            self._committed_out = self.high_watermark
        ready = Ready(
            token=write.token if write else None,
            hard_state=write.hard_state if write else None,
            truncate_to=None,
            append=write.entries if write else (),
            messages_now=tuple(self._messages_now),
            messages_after=messages_after,
            events=tuple(self._events),
            committed=committed,
        )
        self._messages_now.clear()
        self._events.clear()
        return ready

    def persisted(self, token: Token, now_ms: int) -> None:
        """The write of the token is durable: only now may votes and commits depend on it."""
        write = self._write
        assert write is not None, f"token {token} completed, none is in flight"
        assert token == write.token, f"token {token} completed, {write.token} is in flight"
        self._write = None
        if write.hard_state is not None:
            assert write.hard_state.epoch >= self._durable_state.epoch, "the epoch went back"
            self._durable_state = write.hard_state
            self._count_own_vote(now_ms)
        if write.entries:
            end = write.entries[-1].next_offset
            assert self._durable_end < end <= self.log.end_offset, f"{end} confirmed"
            self._durable_end = end
            self._maybe_commit()

    def applied(self, offset: Offset) -> None:
        """Everything below the offset has been applied."""
        assert self.applied_end <= offset <= self.high_watermark, f"applied {offset}"
        self.applied_end = offset

    # --- elections -----------------------------------------------------------------------------

    def _first_deadline_ms(self, now_ms: int) -> int:
        """A lone voter has nobody to wait for."""
        return now_ms if self.config.majority == 1 else self._election_deadline_ms(now_ms)

    def _election_deadline_ms(self, now_ms: int) -> int:
        low, high = self.config.election_timeout_ms_min, self.config.election_timeout_ms_max
        return now_ms + low + self._entropy.below(high - low + 1)

    def _become_unattached(self, trigger: Trigger, epoch: Epoch, now_ms: int) -> None:
        """Know of no leader; in a newer epoch the vote is free again."""
        assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
        if epoch > self.epoch:
            self.epoch, self.vote = epoch, None
        self._enter(trigger, Unattached(deadline_ms=self._election_deadline_ms(now_ms)))

    def _become_pre_candidate(self, now_ms: int) -> None:
        """Ask whether an election would succeed, without disturbing anyone (thesis 9.6)."""
        role = PreCandidate(deadline_ms=self._election_deadline_ms(now_ms))
        self._enter(Trigger.ELECTION_TIMEOUT, role)
        role.granted.add(self.config.me)
        self._ask_for_votes(self._messages_now, pre_vote=True)
        self._maybe_win_pre_votes(role, now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        """Open a new epoch with the own vote; both are durable before anyone hears of them."""
        self.epoch, self.vote = Epoch(self.epoch + 1), self.config.me
        role = Candidate(deadline_ms=self._election_deadline_ms(now_ms))
        self._enter(Trigger.PRE_VOTES_WON, role)
        self._ask_for_votes(self._messages_after, pre_vote=False)

    def _become_leader(self, candidate: Candidate) -> None:
        """Open the epoch with a no-op: nothing older commits before it does (Raft §5.4.2)."""
        assert len(candidate.granted) >= self.config.majority, f"{candidate.granted}"
        assert self._durable_state == HardState(self.epoch, self.config.me), "own vote not durable"
        role = Leader(
            epoch_start_offset=self.log.end_offset,
            match_end=dict.fromkeys(self.config.voters, self.log.start_offset),
        )
        role.match_end[self.config.me] = self._durable_end
        self._enter(Trigger.VOTES_WON, role)
        self._append_entry(role, EntryKind.LEADER_CHANGE, 1, b"")

    def _enter(self, trigger: Trigger, role: Role) -> None:
        name = role_name(role)
        assert next_role(role_name(self.role), trigger) == name, f"{trigger} to {name}"
        self.role = role
        self._events.append(
            RoleChanged(
                role=name,
                epoch=self.epoch,
                leader_id=self.leader_id,
                log_end_offset=self.log.end_offset,
            )
        )

    def _ask_for_votes(self, outbox: list[Message], *, pre_vote: bool) -> None:
        request = VoteRequest(
            sender=self.config.me,
            receiver=self.config.me,
            epoch=self.epoch,
            log_end=self.log_end,
            pre_vote=pre_vote,
        )
        others = (voter for voter in self.config.voters if voter != self.config.me)
        outbox.extend(replace(request, receiver=voter) for voter in others)

    def _handle_pre_vote_request(self, request: VoteRequest) -> None:
        """Promise a vote to an up-to-date candidate unless this node has a leader (KIP-996).

        Changes nothing durable, hence leaves at once.
        """
        has_leader = self.leader_id is not None
        granted = request.epoch == self.epoch and not has_leader and request.log_end >= self.log_end
        self._messages_now.append(self._vote_response(request, granted=granted))

    def _handle_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        """Grant at most one vote an epoch, only to an up-to-date log (Raft §5.2, §5.4.1).

        A repeat of the same candidate is granted again. The answer waits for the vote's fsync.
        """
        granted = (
            request.epoch == self.epoch
            and self.vote in (None, request.sender)
            and self.leader_id is None
            and request.log_end >= self.log_end
        )
        if granted:
            assert isinstance(self.role, Unattached | PreCandidate), f"{self.role} voted"
            self.vote = request.sender
            self.role.deadline_ms = self._election_deadline_ms(now_ms)
        self._messages_after.append(self._vote_response(request, granted=granted))

    def _handle_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        """Count an answer to the present campaign; a late or repeated one changes nothing."""
        if response.epoch < self.epoch:
            return
        match self.role:
            case PreCandidate() as role if response.pre_vote:
                (role.granted if response.granted else role.refused).add(response.sender)
                self._maybe_win_pre_votes(role, now_ms)
            case Candidate() as role if not response.pre_vote:
                (role.granted if response.granted else role.refused).add(response.sender)
                self._maybe_win_votes(role)
            case Unattached() | Follower() | PreCandidate() | Candidate() | Leader():
                return

    def _maybe_win_pre_votes(self, role: PreCandidate, now_ms: int) -> None:
        if len(role.granted) >= self.config.majority:
            self._become_candidate(now_ms)
        elif len(role.refused) > len(self.config.voters) - self.config.majority:
            self._become_unattached(Trigger.PRE_VOTES_LOST, self.epoch, now_ms)

    def _count_own_vote(self, now_ms: int) -> None:
        """The own vote counts once it is durable, if the campaign it was for still goes on."""
        if isinstance(self.role, Candidate) and self._durable_state == HardState(
            self.epoch, self.config.me
        ):
            self.role.granted.add(self.config.me)
            self._maybe_win_votes(self.role)

    def _maybe_win_votes(self, role: Candidate) -> None:
        # A majority of others alone is not enough while the own vote is not durable: a leader
        # that forgets that it voted for itself could vote again in its own epoch.
        if len(role.granted) >= self.config.majority and self.config.me in role.granted:
            self._become_leader(role)

    def _vote_response(self, request: VoteRequest, *, granted: bool) -> VoteResponse:
        return VoteResponse(
            sender=self.config.me,
            receiver=request.sender,
            epoch=self.epoch,
            granted=granted,
            pre_vote=request.pre_vote,
        )

    def _drop(self, message: Message, reason: str) -> None:
        self._events.append(MessageDropped(sender=message.sender, reason=reason))

    # --- the log -------------------------------------------------------------------------------

    def _append_entry(self, leader: Leader, kind: EntryKind, count: int, payload: bytes) -> Entry:
        entry = Entry(
            kind=kind,
            epoch=self.epoch,
            base_offset=self.log.end_offset,
            count=count,
            size=len(payload),
            payload=payload,
        )
        self.log.append(entry.base_offset, entry.next_offset, self.epoch)
        self._append.append(entry)
        leader.uncommitted.append((entry.next_offset, entry.size))
        leader.uncommitted_bytes += entry.size
        return entry

    def _maybe_commit(self) -> None:
        """Move the high watermark to what a majority holds durably, past the own no-op only
        (Raft §5.4.2, figure 8)."""
        leader = self.role
        if not isinstance(leader, Leader):
            return
        leader.match_end[self.config.me] = self._durable_end
        ends = sorted(leader.match_end.values(), reverse=True)
        end = ends[self.config.majority - 1]
        if end <= leader.epoch_start_offset or end <= self.high_watermark:
            return
        assert self.log.is_boundary(end), f"commit inside a batch at {end}"
        self.high_watermark = end
        while leader.uncommitted and leader.uncommitted[0][0] <= end:
            leader.uncommitted_bytes -= leader.uncommitted.popleft()[1]

    # --- writes --------------------------------------------------------------------------------

    def _hard_state(self) -> HardState:
        return HardState(self.epoch, self.vote)

    def _has_write(self) -> bool:
        dirty = self._hard_state() != self._durable_state
        return dirty or bool(self._append) or bool(self._messages_after)

    def _begin_write(self) -> "_Write":
        state = self._hard_state()
        count, size = 0, 0
        for entry in self._append:
            size += entry.size
            if count > 0 and size > self.config.write_bytes_max:
                break
            count += 1
        self._last_token = Token(self._last_token + 1)
        self._write = _Write(
            self._last_token,
            state if state != self._durable_state else None,
            tuple(self._append[:count]),
        )
        del self._append[:count]
        return self._write

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """What holds after every call; numbers as in docs/raft.md. Cost O(voters)."""
        self.log.check_invariants()
        end = self.log.end_offset
        # 1. A node leads only with its own durable vote in the epoch (election safety).
        if isinstance(self.role, Leader):
            assert self._durable_state == HardState(self.epoch, self.config.me), "vote not durable"
            # 2. The leader's epoch begins with its no-op, and its log ends in its epoch.
            assert self.log.epoch_at(self.role.epoch_start_offset) == self.epoch
            # 3. It counts itself to its fsynced offset (durable before acknowledged).
            assert self.role.match_end[self.config.me] <= self._durable_end
            # 4. The bound on uncommitted bytes counts what is uncommitted.
            assert self.role.uncommitted_bytes == sum(size for _, size in self.role.uncommitted)
        # 5. start <= applied <= handed out <= committed <= log end; batches stay whole.
        offsets = (self.log.start_offset, self.applied_end, self._committed_out)
        assert offsets == tuple(sorted(offsets)), f"{offsets} out of order"
        assert self._committed_out <= self.high_watermark <= end, f"hw {self.high_watermark}"
        assert self.log.is_boundary(self.high_watermark), f"hw {self.high_watermark}"
        # 6. With one voter nothing is committed before it is durable here.
        assert self.config.majority > 1 or self.high_watermark <= self._durable_end
        # 7. Epoch and vote never go back, and the log's epochs never pass the node's.
        assert self._durable_state.epoch <= self.epoch, f"epoch {self.epoch} went back"
        assert self.log.last_epoch <= self.epoch, f"log epoch {self.log.last_epoch}"
        # 8. A role that campaigns counts itself at most once and only when durable.
        if isinstance(self.role, Candidate) and self.config.me in self.role.granted:
            assert self._durable_state == HardState(self.epoch, self.config.me)


class _Write:
    """What was handed out under a token."""

    __slots__ = ("entries", "hard_state", "token")

    def __init__(
        self, token: Token, hard_state: HardState | None, entries: tuple[Entry, ...]
    ) -> None:
        self.token = token
        self.hard_state = hard_state
        self.entries = entries
