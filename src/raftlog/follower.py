"""The follower: accepts the leader's entries and snapshots, and acknowledges durable entries.

A follower truncates only at a conflict, never because a request is short: a late old request must
not remove acknowledged entries. It commits only entries that it has verified against the leader in
this epoch, even if its own log is longer.
"""

from dataclasses import dataclass

from ..ids import Epoch, Offset
from .log_view import LOG_START, Entry, LogEnd
from .messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    SnapshotResponse,
)
from .roles import RoleName
from .state import RaftState, Reception
from .voters import Voter


@dataclass(slots=True, kw_only=True)
class Follower:
    """A node that follows the leader of its epoch."""

    name = RoleName.FOLLOWER
    leader: Voter
    deadline_ms: int  # extended by every message of the leader
    contact_ms: int  # time of the leader's last message
    # This node's log matches the leader's below this offset. Every matching request advances it.
    verified_end: Offset | None = None
    # The leader's highest high watermark so far: a heartbeat may overtake the entries it commits.
    leader_high_watermark: Offset = LOG_START.offset
    owes_response: bool = False  # entries were accepted that no response covers yet

    def record_contact(self, state: RaftState, now_ms: int) -> None:
        """Record contact with the leader and restart the election timer."""
        self.contact_ms = now_ms
        self.deadline_ms = state.election_deadline_ms(now_ms)

    # --- entries -------------------------------------------------------------------------------

    def on_append(self, state: RaftState, request: AppendRequest) -> None:
        """Append entries that match this node's log, or reject the request with a divergence
        hint."""
        if state.is_installing:
            # sometimes: entries arrive while a snapshot is installed
            return
        request = _clip_to_start(request, state.log.start)
        if not _matches(state, request.prev):
            state.output.send(_rejection(state, request))
            return
        self._append_entries(state, request.entries)
        end = request.end_offset
        self.verified_end = end if self.verified_end is None else max(self.verified_end, end)
        self._commit(state, request.high_watermark)
        self.owes_response = True
        if state.writes.durable_end >= self.verified_end:
            self.acknowledge(state)

    def _append_entries(self, state: RaftState, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.base_offset < state.log.end_offset:
                if _has_entry(state, entry):
                    continue
                verified = self.verified_end
                assert verified is None or entry.base_offset >= verified, "the leader overwrites"
                state.truncate_to(entry.base_offset)
            state.append(entry)

    def _commit(self, state: RaftState, high_watermark: Offset) -> None:
        """Advance the high watermark to the leader's highest, limited to the verified end."""
        self.leader_high_watermark = max(self.leader_high_watermark, high_watermark)
        if self.verified_end is not None and not state.is_installing:
            state.commit_to(min(self.leader_high_watermark, self.verified_end))

    def acknowledge(self, state: RaftState) -> None:
        """Send the durable end offset if the epoch is durable. Also called after each completed
        write."""
        is_epoch_durable = state.writes.durable_epoch == state.epoch
        if not self.owes_response or self.verified_end is None or not is_epoch_durable:
            return
        match_end = min(self.verified_end, state.writes.durable_end)
        state.output.send(
            AppendResponse(
                sender=state.me,
                receiver=self.leader,
                epoch=state.epoch,
                match_end=match_end,
                received_end=self.verified_end,
            )
        )
        # sometimes if match_end < self.verified_end: only a part of the received entries is durable
        self.owes_response = match_end < self.verified_end

    # --- heartbeats ----------------------------------------------------------------------------

    def on_heartbeat(self, state: RaftState, heartbeat: Heartbeat) -> None:
        """Respond at once, independent of pending writes."""
        self._commit(state, heartbeat.high_watermark)
        if heartbeat.round == 0:
            return
        match_end = None
        if self.verified_end is not None and state.writes.durable_epoch == state.epoch:
            match_end = min(self.verified_end, state.writes.durable_end)
        state.output.send(
            HeartbeatResponse(
                sender=state.me,
                receiver=heartbeat.sender,
                epoch=state.epoch,
                round=heartbeat.round,
                match_end=match_end,
                received_end=self.verified_end,
            )
        )

    # --- snapshots -----------------------------------------------------------------------------

    def on_chunk(self, state: RaftState, chunk: SnapshotChunk) -> None:
        """Accept the next chunk of a snapshot in order. The last chunk starts the install."""
        if state.is_installing:
            return
        if self._skip_snapshot(state, chunk):
            return
        reception = self._reception(state, chunk)
        if reception is None:
            return
        if chunk.position != reception.position:
            # Chunks that are being written are acknowledged after the write. A response now would
            # request more chunks and buffer the whole file in memory while the disk stalls.
            # sometimes: a chunk of a snapshot arrives twice or out of order
            if not state.writes.has_chunks:
                state.output.send(self._received(state, reception))
            return
        state.writes.add_chunk(chunk)
        reception.position += len(chunk.content)
        if chunk.is_last:
            reception.is_whole = True
            state.writes.install(chunk.snapshot)
        else:
            state.output.send_after_write(self._received(state, reception))

    def _skip_snapshot(self, state: RaftState, chunk: SnapshotChunk) -> bool:
        """Return True if this node's log makes the snapshot unnecessary, after acknowledging it.

        The log is committed beyond the snapshot, or has the same entries and keeps its suffix.
        """
        end = chunk.snapshot.end_offset
        if end > state.high_watermark and not _matches(state, chunk.snapshot.log_end):
            return False
        self.verified_end = end if self.verified_end is None else max(self.verified_end, end)
        # sometimes: a snapshot arrives that the log makes unnecessary
        self._commit(state, end)  # a snapshot contains committed entries only
        state.reception = None
        self.owes_response = True
        if state.writes.durable_end >= self.verified_end:
            self.acknowledge(state)
        return True

    def _reception(self, state: RaftState, chunk: SnapshotChunk) -> Reception | None:
        """Return the reception that the chunk belongs to, or None for a stale chunk."""
        known = state.reception
        if known is not None:
            if known.snapshot == chunk.snapshot and known.size == chunk.size:
                # sometimes if known.epoch != chunk.epoch: the next leader continues a snapshot
                known.epoch = chunk.epoch
                return known
            # A late chunk of an older snapshot from the same leader. Another leader may have no
            # newer snapshot; then the newer reception never completes and is replaced.
            if known.snapshot > chunk.snapshot and known.epoch == chunk.epoch:
                # sometimes: a late chunk of an earlier snapshot arrives
                return None
            # sometimes if known.epoch != chunk.epoch: another leader sends another snapshot
            state.writes.drop_chunks()
        state.reception = Reception(chunk.snapshot, chunk.voters, chunk.size, chunk.epoch)
        return state.reception

    def on_installed(self, state: RaftState, end_offset: Offset) -> None:
        """Acknowledge the installed snapshot."""
        self.verified_end = end_offset
        self.owes_response = True
        self.acknowledge(state)

    def on_refused(self, state: RaftState, reception: Reception) -> None:
        """Request a corrupt snapshot again from its start."""
        state.output.send(self._received(state, reception))

    def _received(self, state: RaftState, reception: Reception) -> SnapshotResponse:
        return SnapshotResponse(
            sender=state.me,
            receiver=self.leader,
            epoch=state.epoch,
            snapshot=reception.snapshot,
            position=reception.position,
        )


def _clip_to_start(request: AppendRequest, start: LogEnd) -> AppendRequest:
    """Return the part of a request above the log's start. Entries below it are in a snapshot and
    committed."""
    if request.prev.offset >= start.offset:
        return request
    # sometimes: entries arrive that a snapshot has replaced
    kept = tuple(entry for entry in request.entries if entry.base_offset >= start.offset)
    return AppendRequest(
        sender=request.sender,
        receiver=request.receiver,
        epoch=request.epoch,
        prev=start,
        entries=kept,
        high_watermark=request.high_watermark,
    )


def _matches(state: RaftState, place: LogEnd) -> bool:
    """Return True if this node's log has a batch of this epoch that ends at the offset."""
    log = state.log
    if not log.start_offset <= place.offset <= log.end_offset:
        return False
    return log.is_boundary(place.offset) and log.epoch_before(place.offset) == place.epoch


def _has_entry(state: RaftState, entry: Entry) -> bool:
    """Return True if this node's log has the entry: one offset and epoch name one batch (log
    matching)."""
    log = state.log
    return log.is_boundary(entry.base_offset) and log.epoch_at(entry.base_offset) == entry.epoch


def _rejection(state: RaftState, request: AppendRequest) -> AppendRejected:
    """Return a rejection with the offset at or below `prev` where the logs may diverge."""
    log, prev = state.log, request.prev
    if prev.offset > log.end_offset:
        hint = log.end_offset_for(prev.epoch)
    else:
        boundary = log.boundary_at_or_below(prev.offset)
        # sometimes if boundary < prev.offset: a probe points into a batch of another leader
        epoch = log.epoch_before(boundary)
        hint = log.end_offset_for(Epoch(min(epoch, prev.epoch)))
        if hint.offset > boundary:
            hint = LogEnd(log.epoch_before(boundary), boundary)
    return AppendRejected(
        sender=state.me,
        receiver=request.sender,
        epoch=state.epoch,
        prev=prev,
        hint=hint,
    )
