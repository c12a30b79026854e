"""Reads in flight when a node stops fail with an error."""

import asyncio

from quorumlog.errors import Stopping
from quorumlog.simulation import SimWorld
from quorumlog.simulation.links import apart

from .quorum import Quorum


def test_a_leader_that_stops_with_a_read_under_way_refuses_it_and_ends_in_order() -> None:
    """The resignation reports reads that were refused already. Found by simulation (level quorum,
    seed 23): the orderly stop failed."""
    with SimWorld(1) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        name = leader.machine.name
        world.fabric.barriers.close(apart([name], {"n1", "n2", "n3"} - {name}))
        refused: list[str] = []

        async def read(_: object) -> None:
            try:
                await leader.raft.read_index()
            except Stopping as error:
                refused.append(str(error))

        leader.machine.attach(read, name="read")
        world.run_for(50)

        async def stop(_: object) -> None:
            assert leader.stop is not None
            leader.stop.set()
            await asyncio.sleep(0)

        leader.machine.attach(stop, name="stop")
        quorum.wait(lambda: not leader.machine.alive)
        assert leader.machine.exit_error is None
        assert refused
