"""A node whose state machine failed to apply a committed record stops (B32)."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.kit.raft_node import propose

from quorumlog.errors import QuorumlogError
from quorumlog.ids import NodeId
from quorumlog.raftlog import RaftConfig
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage.shell.data_directory import DataDirectory

from .lone_voter import CLUSTER, open_node


@dataclass
class Breaks:
    """A state machine that applies every value but one."""

    remembers: Any
    taken: list[bytes] = field(default_factory=list)

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        if b"bad" in values:
            raise ValueError("no such record")
        self.taken += values

    def __getattr__(self, name: str) -> Any:
        return getattr(self.remembers, name)


def test_b32_a_node_whose_state_machine_raises_stops_and_acknowledges_nothing_more(
    listener: Any,
) -> None:
    acknowledged: list[bytes] = []
    machine = Breaks(listener)

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, "/data", cluster_id=CLUSTER, node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, "/data")
            config = RaftConfig(node_id=NodeId(1), directory_id=directory.meta.directory_id)
            node = await open_node(runtime, scope, directory, config, machine)
            await node.start()
            for value in (b"good", b"bad", b"after"):
                with suppress(QuorumlogError):
                    await propose(node, [value])
                    acknowledged.append(value)

    with SimWorld(1) as world:
        process = world.node("one")
        process.spawn(main)
        world.run_until(lambda: not process.alive, virtual_ms=60_000)
        assert "no such record" in repr(process.exit_error)
        assert acknowledged == [b"good"]
        assert machine.taken == [b"good"]
