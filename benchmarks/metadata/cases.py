"""The measurements of one size."""

import asyncio
import statistics
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.metadata.subject import (
    Clock,
    Shape,
    Started,
    resident_bytes,
    started,
    topic_id,
    values_of,
)

from quorumlog.ids import NodeId, TopicId
from quorumlog.metadata import (
    AlterConfigs,
    AlterReassignments,
    Command,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    Reassignment,
)
from quorumlog.metadata.snapshots import image_slices
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.memory import short_collections

REPEATS = 50
FALLS = NodeId(0)


def measure(shape: Shape, clock: Clock = perf_counter) -> dict[str, Any]:
    """Return the row of one size, in seconds of this clock; the process must be new."""
    with tempfile.TemporaryDirectory(prefix="quorumlog-metadata-") as folder, short_collections():
        row: dict[str, Any] = real.run(lambda runtime: _measure(runtime, folder, shape, clock))
    return row


async def _measure(runtime: Runtime, folder: str, shape: Shape, clock: Clock) -> dict[str, Any]:
    for _ in values_of(Shape(partitions=10), ""):
        pass  # modules and code of the first use do not count as image
    before = resident_bytes()
    async with started(runtime, f"{folder}/data", shape, clock) as node:
        image_bytes = resident_bytes() - before
        row: dict[str, Any] = {
            "partitions": shape.partitions,
            "topics": shape.topics,
            "brokers": shape.brokers,
            "image_mib": round(image_bytes / 2**20, 1),
            "bytes_a_partition": round(image_bytes / shape.partitions),
            "load_s": round(node.load_s, 3),
            "load_stall_ms": round(node.load_stall_s * 1000, 1),
            **_snapshot(node, Path(folder), clock),
            **await _commands(node, clock),
            **await _fall(node, clock),
        }
    return row


def _snapshot(node: Started, folder: Path, clock: Clock) -> dict[str, float]:
    """Write the committed state to a file, slice by slice; return the seconds."""
    begun, longest = clock(), 0.0
    with (folder / "snapshot").open("wb") as file:
        parts = image_slices(node.metadata.committed_image)
        while True:
            step = clock()
            part = next(parts, None)
            if part is None:
                break
            file.write(b"".join(part))
            longest = max(longest, clock() - step)
    return {
        "write_s": round(clock() - begun, 3),
        "write_step_ms": round(longest * 1000, 1),
        "snapshot_mib": round((folder / "snapshot").stat().st_size / 2**20, 1),
    }


async def _commands(node: Started, clock: Clock) -> dict[str, int]:
    """Return the microseconds of each kind of command, committed."""
    image = node.metadata.committed_image
    name = image.topics_by_id[topic_id(0)].name
    new = iter(range(10_000_000, 20_000_000))
    made: list[TopicId] = []

    def create() -> Command:
        made.append(topic_id(next(new)))
        return CreateTopic(name=f"new-{made[-1].hex()}", topic_id=made[-1], partitions=1)

    present = image.topics_by_id[topic_id(0)].partitions[0].replicas
    orders = cycle((tuple(reversed(present)), present))

    def move() -> Command:
        replicas = next(orders)
        return AlterReassignments(
            reassignments=(Reassignment(topic=name, partition=0, replicas=replicas),)
        )

    values = iter(range(1_000_000, 2_000_000))
    kinds: dict[str, Callable[[], Command]] = {
        "config_us": lambda: AlterConfigs(
            topic=name, changes=(("retention.ms", str(next(values))),)
        ),
        "move_us": move,
        "create_us": create,
        "delete_us": lambda: DeleteTopic(topic_id=made.pop()),
    }
    return {kind: await _median_us(node, make, clock) for kind, make in kinds.items()}


async def _median_us(node: Started, make: Callable[[], Command], clock: Clock) -> int:
    times = []
    for _ in range(REPEATS):
        command = make()
        begun = clock()
        await node.controller.submit(command)
        times.append(clock() - begun)
    return round(statistics.median(times) * 1e6)


async def _fall(node: Started, clock: Clock) -> dict[str, float]:
    """Measure the failure of one broker: all its partitions get another leader."""
    image = node.metadata.committed_image
    leads = sum(1 for key in image.partitions_on(FALLS) if _leader(node, key) == FALLS)
    held = image.replica_count(FALLS)
    node.stalls.reset()
    begun = clock()
    epoch = image.brokers[FALLS].epoch
    await node.controller.submit(FenceBroker(broker_id=FALLS, broker_epoch=epoch))
    moved_s = clock() - begun
    await asyncio.sleep(0.01)
    stall_s = node.stalls.longest_s
    assert not any(_leader(node, key) == FALLS for key in image.partitions_on(FALLS))
    return {
        "replicas_changed": held,
        "leaders_moved": leads,
        "moved_s": round(moved_s, 3),
        "moved_stall_ms": round(stall_s * 1000, 1),
    }


def _leader(node: Started, key: tuple[TopicId, int]) -> NodeId:
    partition = node.metadata.committed_image.partition(*key)
    assert partition is not None, f"{key} is missing"
    return partition.leader
