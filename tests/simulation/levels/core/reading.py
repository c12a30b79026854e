"""What a member sends from its own log and its own files, as a shell reads it when it is asked."""

from quorumlog.raftlog.messages import AppendRequest, SnapshotChunk
from quorumlog.raftlog.ready import SendChunk, SendEntries

from .member import Member


def read_message(
    member: Member, message: SendEntries | SendChunk
) -> AppendRequest | SnapshotChunk | None:
    """The message with what it carries; None when the member does not lead that epoch any more, or
    what it was to send is gone."""
    raft = member.raft
    assert raft is not None, "a read without a process"
    if not raft.is_leader or raft.epoch != message.epoch:
        return None
    if isinstance(message, SendEntries):
        if message.prev.offset < member.log.start.offset:
            return None  # cleaned meanwhile
        return AppendRequest(
            sender=member.me,
            receiver=message.receiver,
            epoch=message.epoch,
            prev=message.prev,
            entries=tuple(member.log.between(message.prev.offset, message.end)),
            high_watermark=message.high_watermark,
        )
    file = member.disk.snapshots.get(message.snapshot)
    if file is None:
        return None
    return SnapshotChunk(
        sender=member.me,
        receiver=message.receiver,
        epoch=message.epoch,
        snapshot=message.snapshot,
        voters=message.voters,
        size=len(file.content),
        position=message.position,
        content=file.content[message.position : message.position + message.bytes_max],
    )
