"""The node's first start, with a death at every file operation that it makes, one after the other.

A random seed falls into the start often; this leaves no operation out.
"""

import asyncio
from typing import Any

import pytest
from tests.simulation.levels.broker import ADDRESS, serve

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, SimNode, SimWorld
from quorumlog.simulation.world import Main

OPERATIONS_MAX = 200  # the first start takes fewer


async def produce(runtime: Runtime) -> int:
    """Create a topic and store a record durably; its offset."""
    log = await connect(runtime)
    await log.admin.create_topic("t", configs={"flush.policy": "fsync"}, if_not_exists=True)
    async with log.producer(linger_ms=0) as producer:
        delivered = await producer.send_and_wait("t", b"value", partition=0)
    await log.close()
    return delivered.offset


async def read(runtime: Runtime) -> list[tuple[int, bytes | None]]:
    log = await connect(runtime)
    async with log.consumer("t", until_end=True) as consumer:
        records = [(record.offset, record.value) async for record in consumer]
    await log.close()
    return records


async def connect(runtime: Runtime) -> AsyncLog:
    while True:
        try:
            return await make_log(runtime, ADDRESS)
        except QuorumlogError:
            await asyncio.sleep(0.5)


def survives(operation: int, *, power: bool, moment: str) -> bool:
    """Die once at this operation of the first start, then store a record, cut the power and read
    it; False when the start made fewer operations."""
    with SimWorld(operation) as world:
        server, client = world.node("server"), world.node("client")
        server.crash_at(CrashPoint(operations=operation, power=power, moment=moment))
        server.spawn(serve)
        world.run_for(900, unless=lambda: not server.alive)
        if server.alive:
            return False
        assert server.killed, f"operation {operation}: {server.exit_error!r}"
        server.restart()
        stored = within(world, server, client, produce)
        server.power_cut()
        server.restart()
        records = within(world, server, client, read)
        assert (stored, b"value") in records, f"operation {operation}: {records}"
    return True


def within(world: SimWorld, server: SimNode, client: SimNode, main: Main) -> Any:
    """Return a client's response from a server that must not end meanwhile."""
    task = client.spawn(main)
    world.run_until(lambda: task.done() or not server.alive, virtual_ms=60_000, why=str(main))
    assert server.alive, f"the node failed: {server.exit_error!r} {server.stops}"
    result = task.result()
    world.run_for(1)  # the client's process ends
    return result


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "inside"])
@pytest.mark.parametrize("power", [False, True])
def test_no_death_in_the_first_start_costs_the_directory(power: bool, moment: str) -> None:
    """Found by a seed: a folder made by an attempt that died was never synced into its parent, and
    the next power cut took the whole data directory away."""
    tried = 1
    while survives(tried, power=power, moment=moment):
        tried += 1
        assert tried < OPERATIONS_MAX, "the start does not end"
    assert tried > 20, f"the start made {tried} operations only"
