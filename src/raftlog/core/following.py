"""The follower: takes in the leader's entries and snapshots, and says what is durable.

Truncates only at a conflict, never because a message is short: an old message that arrives late
must not take back what was acknowledged. Commits only what it has verified against the leader in
this epoch, whatever its own log holds behind that.
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
    """Follows the leader of its epoch."""

    name = RoleName.FOLLOWER
    leader: Voter
    deadline_ms: int  # moved on by every message of the leader
    heard_ms: int  # when the last one came
    # The own log is the leader's up to here: every request of it that fitted moves it on.
    verified_end: Offset | None = None
    owes_answer: bool = False  # something was taken in that no answer covers yet

    def hear(self, replica: Replica, now_ms: int) -> None:
        """The leader lives."""
        self.heard_ms = now_ms
        self.deadline_ms = replica.election_deadline_ms(now_ms)

    # --- entries -------------------------------------------------------------------------------

    def on_append(self, replica: Replica, request: AppendRequest) -> None:
        """Take in entries that fit behind what the own log has, or say where the logs part."""
        if replica.is_installing:
            return
        request = _above(request, replica.log.start)
        if not _fits(replica, request.prev):
            replica.send(_rejected(replica, request))
            return
        self._take_in(replica, request.entries)
        end = request.end_offset
        self.verified_end = end if self.verified_end is None else max(self.verified_end, end)
        self._commit(replica, request.high_watermark)
        self.owes_answer = True
        if replica.writes.durable_end >= self.verified_end:
            self.acknowledge(replica)

    def _take_in(self, replica: Replica, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.base_offset < replica.log.end_offset:
                if _holds(replica, entry):
                    continue
                verified = self.verified_end
                assert verified is None or entry.base_offset >= verified, "the leader overwrites"
                replica.truncate_to(entry.base_offset)
            replica.append(entry)

    def _commit(self, replica: Replica, high_watermark: Offset) -> None:
        """Move the high watermark to the leader's, as far as the own log is known to be its."""
        if self.verified_end is not None and not replica.is_installing:
            replica.commit_to(min(high_watermark, self.verified_end))

    def acknowledge(self, replica: Replica) -> None:
        """Say what is durable, once the epoch is; called when a write has completed as well."""
        if not self.owes_answer or self.verified_end is None or not replica.is_epoch_durable:
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
        self.owes_answer = match_end < self.verified_end

    # --- heartbeats ----------------------------------------------------------------------------

    def on_heartbeat(self, replica: Replica, heartbeat: Heartbeat) -> None:
        """Answer at once, whatever the disk does."""
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
        """Take in the next piece of a snapshot, in order; the last one has it installed."""
        if replica.is_installing:
            return
        if self._holds_snapshot(replica, chunk):
            return
        reception = self._reception(replica, chunk)
        if reception is None:
            return
        if chunk.position != reception.position:
            # Pieces before it that are being written are answered then: who asks for more meanwhile
            # would have the whole file wait in memory for a disk that stands still.
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

    def _holds_snapshot(self, replica: Replica, chunk: SnapshotChunk) -> bool:
        """Whether the own log needs no such snapshot: it is committed further, or has the very
        entries, whose suffix stays."""
        end = chunk.snapshot.end_offset
        if end > replica.high_watermark and not _fits(replica, chunk.snapshot.log_end):
            return False
        self.verified_end = end if self.verified_end is None else max(self.verified_end, end)
        self._commit(replica, end)  # a snapshot holds committed data only
        replica.reception = None
        self.owes_answer = True
        if replica.writes.durable_end >= self.verified_end:
            self.acknowledge(replica)
        return True

    def _reception(self, replica: Replica, chunk: SnapshotChunk) -> Reception | None:
        """The reception that the piece belongs to; None: it is of one that is over."""
        known = replica.reception
        if known is not None:
            if known.snapshot == chunk.snapshot and known.size == chunk.size:
                known.epoch = chunk.epoch
                return known
            # A late piece of the same leader's older one. Another leader may have none that is
            # newer: then what the last one began is never completed.
            if known.snapshot > chunk.snapshot and known.epoch == chunk.epoch:
                return None
            replica.writes.forget_chunks()
        replica.reception = Reception(chunk.snapshot, chunk.voters, chunk.size, chunk.epoch)
        return replica.reception

    def on_installed(self, replica: Replica, end_offset: Offset) -> None:
        """The snapshot is in the log's place."""
        self.verified_end = end_offset
        self.owes_answer = True
        self.acknowledge(replica)

    def on_refused(self, replica: Replica, reception: Reception) -> None:
        """The snapshot proved bad: ask for it where it stands now, at the start."""
        replica.send(self._received(replica, reception))

    def _received(self, replica: Replica, reception: Reception) -> SnapshotResponse:
        return SnapshotResponse(
            sender=replica.me,
            receiver=self.leader,
            epoch=replica.epoch,
            snapshot=reception.snapshot,
            position=reception.position,
        )


def _above(request: AppendRequest, start: LogEnd) -> AppendRequest:
    """The part of a request above the log's start: what is below is committed, in a snapshot."""
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


def _fits(replica: Replica, place: LogEnd) -> bool:
    """Whether the own log has a batch of this epoch that ends at the offset."""
    log = replica.log
    if not log.start_offset <= place.offset <= log.end_offset:
        return False
    return log.is_boundary(place.offset) and log.epoch_before(place.offset) == place.epoch


def _holds(replica: Replica, entry: Entry) -> bool:
    """Whether the own log has the entry: one offset and epoch name one batch (log matching)."""
    log = replica.log
    return log.is_boundary(entry.base_offset) and log.epoch_at(entry.base_offset) == entry.epoch


def _rejected(replica: Replica, request: AppendRequest) -> AppendRejected:
    """Say where the logs may part: at the place that was asked about or below it."""
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
