"""A disk that fails under the quorum's log stops the node and acknowledges nothing."""

import errno
from typing import Any

import pytest

from quorumlog.ids import ClusterId, NodeId
from quorumlog.raftlog import RaftConfig, Voter
from quorumlog.raftlog.shell import RaftNode
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage.shell.directory import Directory

Listener = Any  # conftest.Remembers
ONE = NodeId(1)


@pytest.mark.parametrize(
    ("operation", "path_part", "number"),
    [
        ("sync", "__cluster_metadata-0", errno.EIO),
        ("write", "__cluster_metadata-0", errno.EIO),
        ("write", "__cluster_metadata-0", errno.ENOSPC),
        ("sync", "quorum-state", errno.EIO),
        ("rename", "quorum-state", errno.EIO),
    ],
)
def test_failed_write_stops_the_node_unacknowledged(
    operation: str, path_part: str, number: int, listener: Listener
) -> None:
    acknowledged: list[bytes] = []

    with SimWorld(1) as world:
        machine = world.node("one")

        async def main(runtime: Runtime) -> None:
            await Directory.format(runtime, "/data", cluster_id=ClusterId("c" * 22), node_id=ONE)
            async with runtime.tasks.scope("life") as scope:
                directory = await Directory.open(runtime, scope, "/data")
                me = Voter(ONE, directory.meta.directory_id)
                config = RaftConfig(node_id=ONE, directory_id=me.directory_id, voters=(me,))
                node = await RaftNode.open(
                    runtime, scope, directory, config=config, listener=listener
                )
                if path_part != "quorum-state":
                    await node.start()
                machine.device.fail(operation, number, path_part=path_part, times=1000)
                if path_part == "quorum-state":
                    await node.start()
                await node.propose([b"a"])
                acknowledged.append(b"a")

        machine.spawn(main)
        world.run_until(lambda: not machine.alive, virtual_ms=60_000)
        assert acknowledged == []
        assert listener.values == []
        assert ["metadata log" in reason for reason in machine.stops] == [True]
