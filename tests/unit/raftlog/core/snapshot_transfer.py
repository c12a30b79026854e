"""A quorum whose leader sends a snapshot, and the reasons of dropped messages."""

from tests.kit.quorum import Quorum, quorum_with_leader

from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.ready import MessageDropped


def drop_reasons(quorum: Quorum, node_id: int) -> list[str]:
    return [e.reason for e in quorum.members[node_id].events if isinstance(e, MessageDropped)]


def quorum_sending_snapshot() -> Quorum:
    """Node 1 sends node 3 its second snapshot; the first chunk is in flight."""
    quorum = quorum_with_leader(snapshot_chunk_bytes=8)
    quorum.isolate(3)
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    quorum.heal()
    quorum.tick(100, 1)
    quorum.deliver_all(to=3)
    quorum.deliver_all(to=1)
    assert isinstance(quorum.flying[-1], SnapshotChunk)
    return quorum
