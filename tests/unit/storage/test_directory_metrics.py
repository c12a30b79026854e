"""Metrics of a data directory."""

from quorumlog import simulation
from quorumlog.ids import ClusterId, NodeId
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.shell.data_directory import DataDirectory

BATCH = encode_batch([Record(0, 1, None, b"v" * 100)])


def test_metrics_count_the_operations_of_a_directory() -> None:
    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, "/d", cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("test") as scope:
            directory = await DataDirectory.open(runtime, scope, "/d", config=DirectoryConfig())
            figures = directory.figures
            assert (figures.open_logs, figures.written_bytes, figures.queued_bytes) == (0, 0, 0)
            for name, policy in (("a-0", FlushPolicy.FSYNC), ("b-0", FlushPolicy.REPLICATED)):
                log = await directory.open_log(name, LogConfig(flush_policy=policy), topic_id=None)
                await directory.append(
                    log, BATCH, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                )
            assert (figures.open_logs, figures.failed_logs) == (2, 0)
            assert figures.written_bytes == 2 * len(BATCH)
            assert {name: times.count for name, times in figures.flush_times.items()} == {
                "fsync": 1,
                "replicated": 1,
            }
            free, size = figures.disk_bytes()
            assert 0 < free <= size
            await directory.close()

    simulation.run(main)
