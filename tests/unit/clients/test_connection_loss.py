"""No acknowledged record is lost or reordered while the links to a node break."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from quorumlog.clients.log import make_log
from quorumlog.clients.producer.batches import Delivered
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory
from quorumlog.simulation import Faults, SimWorld

BREAKING = Faults(
    link_break=0.95,
    link_break_frames=(3, 25),
    end_never_learns=0.2,
    late_suffix=0.5,
    network_stall=0.02,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_acknowledged_records_are_where_they_were_acknowledged_in_order(
    seed: int, tmp_path: Path
) -> None:
    """Retries may create duplicates. Acknowledged records are stored, and first occurrences keep
    the order."""
    config = NodeConfig(
        data_dir="/data",
        grpc_listener="server:9094",
        controller_listener="server:9093",
        allow_insecure_listeners=True,
    )
    ready = asyncio.Event()
    acknowledged: dict[Delivered, bytes] = {}
    read: dict[int, list[bytes]] = defaultdict(list)

    async def server(runtime: Runtime) -> None:
        await format_directory(runtime, config)
        async with Node(runtime, config):
            ready.set()
            await asyncio.Event().wait()

    async def client(runtime: Runtime) -> None:
        await ready.wait()
        settings: dict[str, Any] = {"connect_timeout_ms": 60_000, "request_timeout_ms": 2_000}
        async with make_log(runtime, "server:9094", **settings) as log:
            await log.admin.create_topic("t", partitions=3)
            async with log.producer(linger_ms=1, batch_size=100) as producer:
                deliveries = []
                for number in range(400):
                    value = b"%d" % number
                    delivery = await producer.send("t", value, partition=number % 3)
                    deliveries.append((value, delivery))
                    if number % 10 == 0:
                        await asyncio.sleep(0.02)
                for value, delivery in deliveries:
                    acknowledged[await delivery] = value
            world.faults.end_all()
            async with log.consumer("t", until_end=True) as consumer:
                async for record in consumer:
                    place = Delivered("t", record.partition, record.offset)
                    assert record.value is not None
                    assert acknowledged.get(place, record.value) == record.value
                    assert record.offset == len(read[record.partition])
                    read[record.partition].append(record.value)

    with SimWorld(seed, faults=BREAKING) as world:
        world.node("server").spawn(server)
        world.node("client").spawn(client)
        task = world.node("client").root
        assert task is not None
        world.run_until(task, virtual_ms=600_000, why="the client's end")
        task.result()
    assert len(acknowledged) == 400
    for partition, values in read.items():
        firsts = list(dict.fromkeys(values))
        assert firsts == [b"%d" % number for number in range(400) if number % 3 == partition]
