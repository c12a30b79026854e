"""The follower: accepts the leader's entries and snapshots, and acknowledges durable entries.

A follower truncates only at a conflict, never because a request is short: a late old request must
not remove acknowledged entries. It commits only entries that it has verified against the leader in
this epoch, even if its own log is longer.
"""

from dataclasses import dataclass

from ...ids import Epoch, Offset
from .log_view import Entry, LogEnd
from .messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    SnapshotResponse,
)
from .replica import Reception, Replica
from .roles import RoleName
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
    owes_response: bool = False  # entries were accepted that no response covers yet

    def record_contact(self, replica: Replica, now_ms: int) -> None:
        """Record contact with the leader and restart the election timer."""
        self.contact_ms = now_ms
        self.deadline_ms = replica.election_deadline_ms(now_ms)

    # --- entries -------------------------------------------------------------------------------

    def on_append(self, replica: Replica, request: AppendRequest) -> None:
        """Append entries that match this node's log, or reject the request with a divergence
        hint."""
        if replica.is_installing:
            return
        request = _clip_to_start(request, replica.log.start)
        if not _matches(replica, request.prev):
            replica.send(_rejection(replica, request))
            return
        self._append_entries(replica, request.entries)
        end = request.end_offset
        self.verified_end = end if self.verified_end is None else max(self.verified_end, end)
        self._commit(replica, request.high_watermark)
        self.owes_response = True
        if replica.writes.durable_end >= self.verified_end:
            self.acknowledge(replica)

    def _append_entries(self, replica: Replica, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.base_offset < replica.log.end_offset:
                if _has_entry(replica, entry):
                    continue
                verified = self.verified_end
                assert verified is None or entry.base_offset >= verified, "the leader overwrites"
                replica.truncate_to(entry.base_offset)
            replica.append(entry)

    def _commit(self, replica: Replica, high_watermark: Offset) -> None:
        """Advance the high watermark to the leader's, limited to the verified end."""
        if self.verified_end is not None and not replica.is_installing:
            replica.commit_to(min(high_watermark, self.verified_end))

    def acknowledge(self, replica: Replica) -> None:
        """Send the durable end offset if the epoch is durable. Also called after each completed
        write."""
        if not self.owes_response or self.verified_end is None or not replica.is_epoch_durable:
            return
        match_end = min(self.verified_end, replica.writes.durable_end)
        replica.send(
            AppendResponse(
                sender=replica.me,
                receiver=self.leader,
                epoch=replica.epoch,
                match_end=match_end,
                received_end=self.verified_end,
            )
        )
        self.owes_response = match_end < self.verified_end

    # --- heartbeats ----------------------------------------------------------------------------

    def on_heartbeat(self, replica: Replica, heartbeat: Heartbeat) -> None:
        """Respond at once, independent of pending writes."""
        self._commit(replica, heartbeat.high_watermark)
        if heartbeat.round == 0:
            return
        match_end = None
        if self.verified_end is not None and replica.is_epoch_durable:
            match_end = min(self.verified_end, replica.writes.durable_end)
        replica.send(
            HeartbeatResponse(
                sender=replica.me,
                receiver=heartbeat.sender,
                epoch=replica.epoch,
                round=heartbeat.round,
                match_end=match_end,
                received_end=self.verified_end,
            )
        )

    # --- snapshots -----------------------------------------------------------------------------

    def on_chunk(self, replica: Replica, chunk: SnapshotChunk) -> None:
        """Accept the next chunk of a snapshot in order. The last chunk starts the install."""
        if replica.is_installing:
            return
        if self._skip_snapshot(replica, chunk):
            return
        reception = self._reception(replica, chunk)
        if reception is None:
            return
        if chunk.position != reception.position:
            # Chunks that are being written are acknowledged after the write. A response now would
            # request more chunks and buffer the whole file in memory while the disk stalls.
            if not replica.writes.has_chunks:
                replica.send(self._received(replica, reception))
            return
        replica.writes.add_chunk(chunk)
        reception.position += len(chunk.content)
        if chunk.is_last:
            reception.is_whole = True
            replica.writes.install(chunk.snapshot)
        else:
            replica.send_after_write(self._received(replica, reception))

    def _skip_snapshot(self, replica: Replica, chunk: SnapshotChunk) -> bool:
        """Return True if this node's log makes the snapshot unnecessary, after acknowledging it.

        The log is committed beyond the snapshot, or has the same entries and keeps its suffix.
        """
        end = chunk.snapshot.end_offset
        if end > replica.high_watermark and not _matches(replica, chunk.snapshot.log_end):
            return False
        self.verified_end = end if self.verified_end is None else max(self.verified_end, end)
        self._commit(replica, end)  # a snapshot contains committed entries only
        replica.reception = None
        self.owes_response = True
        if replica.writes.durable_end >= self.verified_end:
            self.acknowledge(replica)
        return True

    def _reception(self, replica: Replica, chunk: SnapshotChunk) -> Reception | None:
        """Return the reception that the chunk belongs to, or None for a stale chunk."""
        known = replica.reception
        if known is not None:
            if known.snapshot == chunk.snapshot and known.size == chunk.size:
                known.epoch = chunk.epoch
                return known
            # A late chunk of an older snapshot from the same leader. Another leader may have no
            # newer snapshot; then the newer reception never completes and is replaced.
            if known.snapshot > chunk.snapshot and known.epoch == chunk.epoch:
                return None
            replica.writes.drop_chunks()
        replica.reception = Reception(chunk.snapshot, chunk.voters, chunk.size, chunk.epoch)
        return replica.reception

    def on_installed(self, replica: Replica, end_offset: Offset) -> None:
        """Acknowledge the installed snapshot."""
        self.verified_end = end_offset
        self.owes_response = True
        self.acknowledge(replica)

    def on_refused(self, replica: Replica, reception: Reception) -> None:
        """Request a corrupt snapshot again from its start."""
        replica.send(self._received(replica, reception))

    def _received(self, replica: Replica, reception: Reception) -> SnapshotResponse:
        return SnapshotResponse(
            sender=replica.me,
            receiver=self.leader,
            epoch=replica.epoch,
            snapshot=reception.snapshot,
            position=reception.position,
        )


def _clip_to_start(request: AppendRequest, start: LogEnd) -> AppendRequest:
    """Return the part of a request above the log's start. Entries below it are in a snapshot and
    committed."""
    if request.prev.offset >= start.offset:
        return request
    kept = tuple(entry for entry in request.entries if entry.base_offset >= start.offset)
    return AppendRequest(
        sender=request.sender,
        receiver=request.receiver,
        epoch=request.epoch,
        prev=start,
        entries=kept,
        high_watermark=request.high_watermark,
    )


def _matches(replica: Replica, place: LogEnd) -> bool:
    """Return True if this node's log has a batch of this epoch that ends at the offset."""
    log = replica.log
    if not log.start_offset <= place.offset <= log.end_offset:
        return False
    return log.is_boundary(place.offset) and log.epoch_before(place.offset) == place.epoch


def _has_entry(replica: Replica, entry: Entry) -> bool:
    """Return True if this node's log has the entry: one offset and epoch name one batch (log
    matching)."""
    log = replica.log
    return log.is_boundary(entry.base_offset) and log.epoch_at(entry.base_offset) == entry.epoch


def _rejection(replica: Replica, request: AppendRequest) -> AppendRejected:
    """Return a rejection with the offset at or below `prev` where the logs may diverge."""
    log, prev = replica.log, request.prev
    if prev.offset > log.end_offset:
        hint = log.end_offset_for(prev.epoch)
    else:
        boundary = log.boundary_at_or_below(prev.offset)
        epoch = log.epoch_before(boundary)
        hint = log.end_offset_for(Epoch(min(epoch, prev.epoch)))
        if hint.offset > boundary:
            hint = LogEnd(log.epoch_before(boundary), boundary)
    return AppendRejected(
        sender=replica.me,
        receiver=request.sender,
        epoch=replica.epoch,
        prev=prev,
        hint=hint,
    )
