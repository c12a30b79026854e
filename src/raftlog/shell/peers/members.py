"""This node among the others, as every stream and call introduces it. Pure values."""

from collections.abc import Callable
from dataclasses import dataclass

from ....ids import ClusterId
from ....proto import raft_pb2 as pb
from ...core.voters import Voter
from ...formats.wire import Introduction, encode_introduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who this is."""

    cluster_id: ClusterId
    me: Voter
    incarnation: bytes  # 8 bytes, drawn at its start
    next_stream_number: Callable[[], int]  # counts up over all of its streams

    def introduction(
        self, receiver: Voter | None, *, stream_number: int = 0, is_snapshot: bool = False
    ) -> pb.Introduction:
        """What comes first on a stream or in a call."""
        mine = Introduction(
            sender=self.me,
            incarnation=self.incarnation,
            stream_number=stream_number,
            is_snapshot=is_snapshot,
        )
        return encode_introduction(mine, cluster_id=self.cluster_id, receiver=receiver)
