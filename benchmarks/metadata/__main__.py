"""The metadata of large clusters: bytes per partition, snapshots, a failed broker, a command.

Every size is measured in a separate process. *Image* is the growth of the process's memory. *Load*
is a controller that starts on a snapshot of this state and executes its first command; *write* is
the snapshot itself, on the same disk, in the slices of the product. *Moved* is the failure of one
broker that leads its share: from the command to its commit, with every leadership moved. *Stall* is
the longest stall of the loop during that, sampled every millisecond. Commands are decided,
appended, committed and replayed one at a time: the median.

Run: python -m benchmarks.metadata [--partitions 1000 10000 100000] [--a-topic 10] [--sweep]
`--sweep` measures the costs of partitions, topics and brokers separately instead, see `sweep`.
Goals, at 1,000,000 partitions of three replicas: 1.5 GiB of image, 15 s for a snapshot written or
loaded, 2 s for a broker that leads 50,000, no stall above 50 ms during its failure, and the same
microseconds per command at every size.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.metadata import sweep
from benchmarks.metadata.cases import measure
from benchmarks.metadata.subject import Shape
from benchmarks.raft.result import machine

RESULT = Path(__file__).parent.parent / "results" / "metadata.json"
LEADS = 50_000
"""Partitions that each broker leads if there are enough: the failed broker of the goal."""
BROKERS_MIN = 3


def shape_of(partitions: int, a_topic: int) -> Shape:
    """Return the shape of a cluster of so many partitions."""
    brokers = max(BROKERS_MIN, partitions // LEADS)
    return Shape(partitions=partitions, partitions_a_topic=a_topic, brokers=brokers)


def main(arguments: Sequence[str]) -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metadata")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--a-topic", type=int, default=10)
    parser.add_argument("--sweep", action="store_true", help="partitions, topics, brokers apart")
    options = parser.parse_args(arguments)
    if options.sweep:
        sweep.main()
        return 0
    rows: list[dict[str, Any]] = []
    spawned = multiprocessing.get_context("spawn")
    for partitions in options.partitions:
        with spawned.Pool(1) as pool:
            row = pool.apply(measure, (shape_of(partitions, options.a_topic),))
        rows.append(row)
        print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({**machine(), "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
