"""One voter of quorumlog: a complete RaftNode on the real runtime with a counter as state machine.

It serves the calls of voters and the stream of proposals at one address. Run by `ours`, which
exchanges lines of JSON with it; SIGTERM stops it in order, after it transfers its leadership.

Run: python -m benchmarks.raft.voter '{"node_id": 1, "folder": ..., "voters": [...], ...}'
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.raft.load import VALUES, Meter, Outcome, Work

from quorumlog.ids import ClusterId, DirectoryId, NodeId
from quorumlog.raftlog import RaftConfig, Voter, VoterSet
from quorumlog.raftlog.shell import ProposalService, RaftNode, format_directory
from quorumlog.runtime import Runtime, real
from quorumlog.storage.shell import DataDirectory

CLUSTER = ClusterId("benchmark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The configuration of a voter."""

    node_id: int
    folder: str
    addresses: tuple[str, ...]  # of all voters, by node id from 0
    timeouts: dict[str, Any]  # fields of RaftConfig

    @property
    def voters(self) -> VoterSet:
        """Return all voters; their directory ids follow from their node ids."""
        return VoterSet.of(
            (Voter(NodeId(number), directory_id(number)), address)
            for number, address in enumerate(self.addresses)
        )


def directory_id(number: int) -> DirectoryId:
    """Return the directory id of a node."""
    return DirectoryId(b"benchmark-%06d" % number)


class Counter:
    """A minimal replicated state machine."""

    def __init__(self) -> None:
        self.count = 0

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """Count the values."""
        self.count += len(values)

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """Do nothing."""

    def snapshot(self) -> Iterator[list[bytes]]:
        """Return the count."""
        yield [str(self.count).encode()]

    def begin_restore(self) -> None:
        """Reset the count."""
        self.count = 0

    def restore(self, values: list[bytes]) -> None:
        """Restore the count."""
        self.count = int(values[0])

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """Do nothing more."""


async def injected(node: RaftNode, work: Work) -> Outcome:
    """Keep so many proposals of one value in flight in this process."""
    meter = Meter(work)
    over = asyncio.get_running_loop().create_future()
    turn = 0

    def propose() -> None:
        nonlocal turn
        turn += 1
        proposal = node.propose_nowait([VALUES[turn % len(VALUES)]])
        asked_s = time.perf_counter()
        proposal.done_future().add_done_callback(lambda done: answered(proposal.error, asked_s))

    def answered(error: Exception | None, asked_s: float) -> None:
        if error is not None:
            if not over.done():
                over.set_exception(error)
            return
        meter.answered(asked_s)
        if not meter.is_over:
            propose()
        elif not over.done():
            over.set_result(None)

    for _ in range(work.outstanding):
        propose()
    await over
    return meter.outcome()


async def serve(runtime: Runtime, given: Given) -> None:
    """Run the voter until SIGTERM."""
    await format_directory(
        runtime,
        given.folder,
        cluster_id=CLUSTER,
        node_id=NodeId(given.node_id),
        voters=given.voters,
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with runtime.tasks.scope("voter") as scope:
        directory = await DataDirectory.open(runtime, scope, given.folder)
        config = RaftConfig(
            node_id=NodeId(given.node_id),
            directory_id=directory.meta.directory_id,
            address=given.addresses[given.node_id],
            **given.timeouts,
        )
        node = await RaftNode.open(
            runtime, scope, directory, cluster_id=CLUSTER, config=config, state_machine=Counter()
        )
        handlers = {**node.handlers(), **ProposalService(runtime, node).handlers()}
        listener = await runtime.network.serve(given.addresses[given.node_id], handlers)
        await node.start()
        talk = scope.spawn(converse(node), name="converse")
        await stopping.wait()
        talk.cancel()
        await node.close()
        await listener.close(grace_ms=0)
        await directory.close()


async def converse(node: RaftNode) -> None:
    """Respond to the lines of standard input."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        request = json.loads(line)
        answer: dict[str, Any] = {
            "leads": node.status().is_leader,
            "leader_id": node.leader_id,
            "epoch": node.status().epoch,
            "high_watermark": node.status().high_watermark,
        }
        if request["do"] == "load":
            answer = asdict(await injected(node, Work.of(request["work"])))
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Parse the configuration and run the voter."""
    given = json.loads(sys.argv[1])
    given["addresses"] = tuple(given["addresses"])
    real.run(lambda runtime: serve(runtime, Given(**given)), name=f"voter-{given['node_id']}")


if __name__ == "__main__":
    main()
