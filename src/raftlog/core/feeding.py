"""The next requests to one peer: a probe, entries up to the window, or a snapshot chunk.

A call without a change in progress sends nothing: requests in flight are recorded in the peer's
progress.
"""

from ...ids import Offset
from .log_view import LogEnd
from .messages import AppendRequest
from .progress import Progress, ProgressState
from .ready import SendChunk, SendEntries
from .replica import Replica
from .voters import Voter


def send_append(
    replica: Replica, peer: Voter, progress: Progress, *, number: int, tick: int
) -> None:
    """Send the requests that the peer's window allows, after this heartbeat round and tick."""
    if progress.is_waiting:
        return  # the one request of states probe and snapshot is in flight
    if progress.state is not ProgressState.SNAPSHOT:
        if progress.next_offset >= replica.log.start_offset:
            if progress.state is ProgressState.REPLICATE:
                _send_entries(replica, peer, progress)
            else:
                progress.request_sent(number=number, tick=tick)
                _send_probe(replica, peer, progress)
            return
        assert replica.snapshots, f"log start {replica.log.start_offset} without a snapshot"
    if progress.snapshot not in replica.snapshots:
        progress.become_snapshot(replica.snapshots[-1])
    progress.request_sent(number=number, tick=tick)
    _send_chunk(replica, peer, progress)


def _send_probe(replica: Replica, peer: Voter, progress: Progress) -> None:
    """Send a probe: an append request without entries, which the peer may reject."""
    replica.send(
        AppendRequest(
            sender=replica.me,
            receiver=peer,
            epoch=replica.epoch,
            prev=_log_end_at(replica, progress.next_offset),
            entries=(),
            high_watermark=replica.high_watermark,
        )
    )


def _send_entries(replica: Replica, peer: Voter, progress: Progress) -> None:
    """Send requests one after the other without waiting for responses."""
    config = replica.config
    while progress.next_offset < replica.log.end_offset and not progress.is_full(
        requests_max=config.inflight_requests_max, bytes_max=config.inflight_bytes_max
    ):
        start = progress.next_offset
        end, size = replica.log.range_end(start, bytes_max=config.append_bytes_max)
        progress.sent(end, size)
        progress.sent_high_watermark = replica.high_watermark
        replica.send(
            SendEntries(
                receiver=peer,
                epoch=replica.epoch,
                prev=_log_end_at(replica, start),
                end=end,
                high_watermark=replica.high_watermark,
            )
        )


def _send_chunk(replica: Replica, peer: Voter, progress: Progress) -> None:
    """Send the snapshot chunk at the peer's position."""
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


def _log_end_at(replica: Replica, offset: Offset) -> LogEnd:
    return LogEnd(replica.log.epoch_before(offset), offset)
