"""One data directory through failures, deletions and several lives: what holds across them."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from quorumlog import simulation
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime, Scope
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import DirectoryConfig, FlushPolicy, Log, LogConfig, Origin
from quorumlog.storage.shell import Directory

DATA: Final = "/data"
CLUSTER: Final = ClusterId("c")
TOPIC: Final = TopicId(b"t" * 16)
FSYNC: Final = LogConfig(flush_policy=FlushPolicy.FSYNC)
REPLICATED: Final = LogConfig(flush_policy=FlushPolicy.REPLICATED)

Life = Callable[[Runtime], Coroutine[Any, Any, None]]


def batch(value: bytes = b"v", *, timestamp: int = 1, **fields: int) -> bytes:
    return encode_batch([Record(0, timestamp, None, value, ())], **fields)


async def open_directory(runtime: Runtime, scope: Scope, **config: int) -> Directory:
    if not runtime.files.exists(f"{DATA}/meta.properties"):
        await Directory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NodeId(1))
    return await Directory.open(runtime, scope, DATA, config=DirectoryConfig(**config))


async def append(
    directory: Directory, log: Log, value: bytes = b"v", *, flush: bool = True, epoch: int = 0
) -> int:
    appended = await directory.append(
        log, batch(value), leader_epoch=epoch, origin=Origin.CLIENT, flush=flush
    )
    return appended.base_offset


def live(world: SimWorld, node: SimNode, life: Life) -> None:
    """Run one life to its end, however it ends."""
    node.spawn(life)
    world.run_until(lambda: not node.alive, virtual_ms=600_000)
    if node.exit_error is not None:
        raise node.exit_error


# --- identity ----------------------------------------------------------------------------------


def test_every_formatted_directory_gets_an_id_of_its_own() -> None:
    async def main(runtime: Runtime) -> None:
        ids = [
            (
                await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=NodeId(node))
            ).directory_id
            for node, path in enumerate(("/a", "/b", "/c"))
        ]
        runtime.files.remove("/c/meta.properties")  # a wiped disk under its old path
        wiped = await Directory.format(runtime, "/c", cluster_id=CLUSTER, node_id=NodeId(2))
        assert len({*ids, wiped.directory_id}) == 4

    simulation.run(main)
