"""A large cluster while its brokers fail, on virtual time: committed records, moved leaders, and
partitions without a leader and their duration.

The decisions are those of the product's controller and replicas; logs, messages and time are
modelled, see tests/simulation/levels/partitions. Brokers crash and restart one after the other,
then as many concurrently, while clients append to some of the partitions. All invariants of the
simulation are checked: no acknowledged record is lost, no two replicas commit different records,
and at the end every replica is in sync and equal.

*Fenced* is a broker at a random time within its session after its crash. *Without a leader* counts
partitions without a live leader, from the crash to the new leader's first step; in virtual time, so
that only the CPU seconds depend on the machine.

Run: python -m benchmarks.metadata.rolling [--quick]
"""

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.metadata.failures import PLACES_A_TOPIC, Rolling, Scale
from benchmarks.raft.result import machine

from quorumlog.runtime.memory import short_collections

RESULT = Path(__file__).parent.parent / "results" / "metadata_rolling.json"


def measure(scale: Scale) -> dict[str, Any]:
    """Run it. Raise violations."""
    began_s, began_cpu_s = perf_counter(), process_time()
    rolling = Rolling(scale)
    rolling.begin()
    phases = [rolling.one_after_the_other(), rolling.all_at_once()]
    rolling.check()
    return {
        "brokers": scale.brokers,
        "partitions": scale.topics * PLACES_A_TOPIC,
        "failures": scale.failures,
        "session_timeout_ms": scale.session_timeout_ms,
        "written_partitions": scale.written,
        "phases": phases,
        "acknowledged": rolling.world.checks.acks,
        "events": rolling.world.events,
        "event_hash": rolling.world.hash(),
        "virtual_s": round(rolling.world.now_us / 1e6),
        "wall_s": round(perf_counter() - began_s, 1),
        "cpu_s": round(process_time() - began_cpu_s, 1),
        "memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main(arguments: Sequence[str]) -> int:
    """Run, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metadata.rolling")
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--failures", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="10 brokers, 1,000 partitions")
    options = parser.parse_args(arguments)
    if options.quick:
        options.brokers, options.partitions, options.failures = 10, 1_000, 3
    scale = Scale(
        brokers=options.brokers,
        topics=max(1, options.partitions // PLACES_A_TOPIC),
        failures=options.failures,
        seed=options.seed,
    )
    with short_collections():
        result = measure(scale)
    for phase in result["phases"]:
        print("  ".join(f"{name}={value}" for name, value in phase.items()))
    print("  ".join(f"{name}={value}" for name, value in result.items() if name != "phases"))
    if not options.quick:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps({**machine(), **result}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
