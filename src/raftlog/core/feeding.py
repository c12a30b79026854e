"""What a leader sends to one peer next: a question where the logs part, entries as far as the
window has room, or a piece of a snapshot.

Asked again without news it sends nothing: what is out already is in the peer's progress.
"""

from ...ids import Offset
from .log_view import LogEnd
from .messages import AppendRequest
from .progress import Progress, ProgressState
from .ready import SendChunk, SendEntries
from .replica import Replica
from .voters import Voter


def feed(replica: Replica, peer: Voter, progress: Progress, *, number: int, beat: int) -> None:
    """Send what the peer has room for, behind this heartbeat round and timed heartbeat."""
    if progress.is_waiting:
        return  # the one request of probe and snapshot is out
    if progress.state is not ProgressState.SNAPSHOT:
        if progress.next_offset >= replica.log.start_offset:
            if progress.state is ProgressState.REPLICATE:
                _send_entries(replica, peer, progress)
            else:
                progress.asked(number=number, beat=beat)
                _ask(replica, peer, progress)
            return
        assert replica.snapshots, "the log was cleaned without a snapshot"
    if progress.snapshot not in replica.snapshots:
        progress.become_snapshot(replica.snapshots[-1])
    progress.asked(number=number, beat=beat)
    _send_piece(replica, peer, progress)


def _ask(replica: Replica, peer: Voter, progress: Progress) -> None:
    """Ask whether the logs agree at one place; without entries, they may be refused."""
    replica.send(
        AppendRequest(
            sender=replica.me,
            receiver=peer,
            epoch=replica.epoch,
            prev=_place(replica, progress.next_offset),
            entries=(),
            high_watermark=replica.high_watermark,
        )
    )


def _send_entries(replica: Replica, peer: Voter, progress: Progress) -> None:
    """Send requests one after the other, without waiting for answers."""
    config = replica.config
    while progress.next_offset < replica.log.end_offset and not progress.is_full(
        requests_max=config.inflight_requests_max, bytes_max=config.inflight_bytes_max
    ):
        start = progress.next_offset
        end, size = replica.log.range_end(start, bytes_max=config.append_bytes_max)
        progress.sent(end, size)
        progress.told_high_watermark = replica.high_watermark
        replica.send(
            SendEntries(
                receiver=peer,
                epoch=replica.epoch,
                prev=_place(replica, start),
                end=end,
                high_watermark=replica.high_watermark,
            )
        )


def _send_piece(replica: Replica, peer: Voter, progress: Progress) -> None:
    """Send the piece of the snapshot that the peer goes on with."""
    assert progress.snapshot is not None, "no snapshot in state snapshot"
    replica.send(
        SendChunk(
            receiver=peer,
            epoch=replica.epoch,
            snapshot=progress.snapshot,
            voters=replica.voters.at(progress.snapshot.end_offset),
            position=progress.position,
            bytes_max=replica.config.snapshot_chunk_bytes,
        )
    )


def _place(replica: Replica, offset: Offset) -> LogEnd:
    return LogEnd(replica.log.epoch_before(offset), offset)
