"""Opening of a data directory of many partitions after a clean stop, and of one partition.

The directory itself writes its content: one batch per partition, then a clean stop with its marker.
The rows are the opening of the directory, the first use of one partition, and the opening of all
others with the concurrency of a busy node; then a stop.

Run: python -m benchmarks.storage.opening [--partitions 10000]
Goal: all of 10,000 partitions opened in under 5 s.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from time import perf_counter

from benchmarks.storage.subject import batch_of, keep

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.runtime import Runtime, real
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.shell import DataDirectory

GOAL_S = 5.0
AT_ONCE = 500
TOPIC = TopicId(b"b" * 16)


async def fill(runtime: Runtime, path: str, partitions: int) -> None:
    """Create the partitions with a batch each."""
    batch = batch_of(4096)
    await DataDirectory.format(runtime, path, cluster_id=ClusterId("bench"), node_id=NodeId(1))
    async with runtime.tasks.scope("fill") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        for start in range(0, partitions, AT_ONCE):
            names = [f"bench-{n}" for n in range(start, min(start + AT_ONCE, partitions))]
            for name in names:
                log = await directory.open_log(name, LogConfig(), topic_id=TOPIC)
                await directory.append(
                    log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
                )
        await directory.close()


async def measure(runtime: Runtime, path: str, partitions: int) -> list[dict[str, object]]:
    """Open, use, close; return the seconds by step."""
    rows: list[dict[str, object]] = []

    def row(what: str, began: float) -> None:
        rows.append({"what": what, "seconds": round(perf_counter() - began, 3)})

    async with runtime.tasks.scope("measure") as scope:
        began = perf_counter()
        directory = await DataDirectory.open(runtime, scope, path)
        row("the directory", began)
        began = perf_counter()
        await directory.open_log("bench-0", LogConfig(), topic_id=TOPIC)
        row("the first partition", began)
        began = perf_counter()
        for start in range(1, partitions, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, partitions))
            names = [f"bench-{number}" for number in numbers]
            await asyncio.gather(
                *(directory.open_log(name, LogConfig(), topic_id=TOPIC) for name in names)
            )
        row(f"the other {partitions - 1:,} partitions", began)
        began = perf_counter()
        await directory.close()
        row("the close", began)
    return rows


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="quorumlog-opening-", dir=options.dir)
    try:
        path = f"{folder}/data"
        real.run(lambda runtime: fill(runtime, path, options.partitions))
        rows = real.run(lambda runtime: measure(runtime, path, options.partitions))
    finally:
        shutil.rmtree(folder)
    keep("opening", rows, goal_s=GOAL_S, partitions=options.partitions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
