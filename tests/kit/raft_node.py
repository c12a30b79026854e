"""Helpers for tests of a Raft node."""

from dataclasses import dataclass

from quorumlog.ids import Offset
from quorumlog.raftlog.shell import RaftNode


async def propose(node: RaftNode, values: list[bytes]) -> int:
    """Propose values; return the last offset once they are committed."""
    proposal = node.propose_nowait(values)
    await proposal.wait_committed()
    return proposal.last_offset


@dataclass(frozen=True, slots=True)
class AwaitedNode:
    """A node with proposals that can be awaited."""

    node: RaftNode

    async def propose(self, values: list[bytes]) -> int:
        return await propose(self.node, values)

    async def read_index(self) -> Offset:
        return await self.node.read_index()
