"""A node that stops while the log of a replica is being opened."""

import asyncio

import pytest

from quorumlog import simulation
from quorumlog.broker.partition import Partition
from quorumlog.broker.shell.replica import Replica, ReplicaDeps
from quorumlog.errors import Stopping
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.runtime import Runtime
from quorumlog.storage import LogConfig
from quorumlog.storage.shell.data_directory import DataDirectory


def test_request_for_an_opening_log_gets_an_error_when_the_node_stops() -> None:
    """Found by the simulation of the clients: the handler failed with an assertion, which clients
    do not retry."""

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(
            runtime, "/data", cluster_id=ClusterId("c" * 22), node_id=NodeId(1)
        )
        async with (
            runtime.tasks.scope("directory") as outer,
            runtime.tasks.scope("replica") as scope,
        ):
            directory = await DataDirectory.open(runtime, outer, "/data")
            around = ReplicaDeps(
                clock=runtime.clock,
                scope=scope,
                directory=directory,
                follow=lambda _: None,
                forget=lambda _: None,
                review_isr=lambda _: None,
                failed=lambda _, __: None,
            )
            replica = Replica(
                around,
                Partition("t", 0, NodeId(1), waits_max=10),
                topic_id=TopicId(b"t" * 16),
                config=LogConfig(),
                after=asyncio.Event(),  # a deletion that does not end
            )
            waiting = asyncio.create_task(replica.opened())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            scope.cancel()
            with pytest.raises(Stopping, match="stopped while the log was being opened"):
                await waiting
            await directory.close()

    simulation.run(main)
