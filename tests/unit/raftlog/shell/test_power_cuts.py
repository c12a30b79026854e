"""Committed proposals survive a power cut at any file operation, in order."""

from typing import Any

import pytest
from tests.kit.raft_node import propose

from quorumlog.ids import NodeId
from quorumlog.raftlog import RaftConfig
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, SimWorld
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.storage.shell.data_directory import DataDirectory

from .lone_voter import CLUSTER, open_node

Listener = Any  # conftest.Remembers
ONE = NodeId(1)
DATA = "/data"


async def propose_forever(
    runtime: Runtime, listener: Listener, acknowledged: list[bytes], life: int
) -> None:
    """Propose without end and record the acknowledged proposals."""
    if not runtime.files.exists(f"{DATA}/meta.properties"):
        await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=ONE)
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA)
        config = RaftConfig(node_id=ONE, directory_id=directory.meta.directory_id)
        node = await open_node(runtime, scope, directory, config, listener)
        await node.start()
        for number in range(40):
            values = [b"%d-%d-%d" % (life, number, index) for index in range(number % 3 + 1)]
            await propose(node, values)
            acknowledged.extend(values)
        await node.close()
        await directory.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_committed_proposals_survive_a_power_cut_at_any_file_operation(
    seed: int, listener: Listener
) -> None:
    acknowledged: list[bytes] = []
    entropy = SimEntropy(f"power-cuts/{seed}")
    with SimWorld(seed) as world:
        node = world.node("one")

        def start(life: int) -> Any:
            listener.batches.clear()
            return node.spawn(
                lambda runtime: propose_forever(runtime, listener, acknowledged, life)
            )

        for life in range(4):
            moment = ("before", "inside", "after")[entropy.below(3)]
            node.crash_at(
                CrashPoint(operations=1 + entropy.below(120), power=seed % 4 > 0, moment=moment)
            )
            start(life)
            world.run_until(lambda: not node.alive, virtual_ms=60_000)
            assert node.killed or node.exit_error is None, node.exit_error
        node.crash_at(None)
        start(4)
        world.run_until(lambda: not node.alive, virtual_ms=60_000)
        assert node.exit_error is None, node.exit_error
    delivered = listener.values
    assert len(delivered) == len(set(delivered)), "a batch was delivered twice"
    kept = set(delivered)
    assert [value for value in acknowledged if value not in kept] == []
    acknowledged_set = set(acknowledged)
    assert [value for value in delivered if value in acknowledged_set] == acknowledged
    epochs = [epoch for _, epoch, _ in listener.batches]
    assert epochs == sorted(epochs)
