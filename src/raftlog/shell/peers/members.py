"""The identity of this node in streams and calls. Pure values."""

from collections.abc import Callable
from dataclasses import dataclass

from ....ids import ClusterId
from ....proto import raft_pb2 as pb
from ...core.voters import Voter
from ...formats.wire import Introduction, encode_introduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The identity that this node sends to others."""

    cluster_id: ClusterId
    me: Voter
    incarnation: bytes  # 8 bytes, drawn at the node's start
    next_stream_number: Callable[[], int]  # increasing over all of its streams

    def introduction(
        self, receiver: Voter | None, *, stream_number: int = 0, is_snapshot: bool = False
    ) -> pb.Introduction:
        """Return the introduction, the first part of a stream or call."""
        mine = Introduction(
            sender=self.me,
            incarnation=self.incarnation,
            stream_number=stream_number,
            is_snapshot=is_snapshot,
        )
        return encode_introduction(mine, cluster_id=self.cluster_id, receiver=receiver)
