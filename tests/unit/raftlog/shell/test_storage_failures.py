"""A disk failure of the quorum's log stops the node and acknowledges nothing."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.raft_node import propose

from quorumlog.errors import QuorumlogError
from quorumlog.ids import NodeId
from quorumlog.raftlog import RaftConfig
from quorumlog.raftlog.shell import RaftNode
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage.shell.data_directory import DataDirectory

from .lone_voter import CLUSTER, open_node

Listener = Any  # conftest.Remembers
ONE = NodeId(1)


@pytest.mark.parametrize(
    ("operation", "path_part", "number"),
    [
        ("sync", "__cluster_metadata-0", errno.EIO),
        ("write", "__cluster_metadata-0", errno.EIO),
        ("write", "quorum-state", errno.ENOSPC),
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
            async with opened(runtime, listener) as node:
                if path_part != "quorum-state":
                    await node.start()
                machine.device.fail(operation, number, path_part=path_part, times=1000)
                if path_part == "quorum-state":
                    await node.start()
                await propose(node, [b"a"])
                acknowledged.append(b"a")

        machine.spawn(main)
        world.run_until(lambda: not machine.alive, virtual_ms=60_000)
        assert acknowledged == []
        assert listener.values == []
        assert ["metadata log" in reason for reason in machine.stops] == [True]


@asynccontextmanager
async def opened(runtime: Runtime, listener: Listener) -> AsyncIterator[RaftNode]:
    """Open a node on a formatted directory without starting it."""
    await DataDirectory.format(runtime, "/data", cluster_id=CLUSTER, node_id=ONE)
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, "/data")
        config = RaftConfig(node_id=ONE, directory_id=directory.meta.directory_id)
        yield await open_node(runtime, scope, directory, config, listener)
        await directory.close()


def test_full_disk_delays_proposals_and_loses_none(listener: Listener) -> None:
    """The write was undone, so the log stays usable. The node continues once there is space."""
    with SimWorld(1) as world:
        machine = world.node("one")

        async def main(runtime: Runtime) -> None:
            async with opened(runtime, listener) as node:
                await node.start()
                machine.device.fail(
                    "write", errno.ENOSPC, path_part="__cluster_metadata-0", times=5
                )
                before_ms = runtime.clock.now_ms()
                await asyncio.gather(propose(node, [b"a"]), propose(node, [b"b"]))
                assert runtime.clock.now_ms() - before_ms >= 5 * 500
                await node.close()

        world.run_until(machine.spawn(main), virtual_ms=60_000)
        assert listener.values == [b"a", b"b"]
        assert machine.stops == []


def test_a_node_can_be_closed_while_its_disk_is_full(listener: Listener) -> None:
    """Proposals that waited for space are refused, not acknowledged."""
    with SimWorld(1) as world:
        machine = world.node("one")

        async def main(runtime: Runtime) -> None:
            async with opened(runtime, listener) as node:
                await node.start()
                machine.device.fail(
                    "write", errno.ENOSPC, path_part="__cluster_metadata-0", times=1000
                )
                proposal = node.propose_nowait([b"a"])
                await asyncio.sleep(2)
                await node.close()
                with pytest.raises(QuorumlogError):
                    await proposal.wait_committed()

        task = machine.spawn(main)
        world.run_until(task, virtual_ms=60_000)
        task.result()
        assert listener.values == []
        assert machine.stops == []
