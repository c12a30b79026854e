"""How long a quorum of three is without a leader: the active one ends, a proposal is committed.

A client has connections to all voters and asks the living ones in turn until one commits its
proposal; the time runs from the signal to that answer. The voter is started again and has caught up
before the next one ends. kill -9 with the default time-outs and with half of them, and SIGTERM,
which resigns before it goes.

Run: python -m benchmarks.raft.failover [--kills 30] [--dir FOLDER] [--quick]
Goals for the median: under 2 s with default time-outs, under 1.2 s with halved ones, under 0.3 s
after SIGTERM.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.raft.load import VALUES, percentile
from benchmarks.raft.ours import PROPOSE, Quorum
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import keep, machine
from benchmarks.raft.wire import Connection

from quorumlog.proto import raft_pb2

HALVED = {"heartbeat_ms": 50, "election_timeout_ms_min": 500, "election_timeout_ms_max": 1000}
PAUSE_S = 0.002  # after both survivors refused
ANSWER_S = 1.0  # a voter that says nothing for so long is left for the other one
FAILOVER_S = 30.0
SETTLE_S = (0.3, 0.6)  # between two ends, drawn: no phase of the heartbeats is preferred


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How the active voter ends."""

    name: str
    timeouts: dict[str, int]
    is_graceful: bool
    goal_s: float  # for the median


CASES = (
    Case(name="kill -9, default time-outs", timeouts={}, is_graceful=False, goal_s=2.0),
    Case(name="kill -9, halved time-outs", timeouts=HALVED, is_graceful=False, goal_s=1.2),
    Case(name="SIGTERM, default time-outs", timeouts={}, is_graceful=True, goal_s=0.3),
)


async def proposed(address: str) -> bool:
    """Propose one value there; whether it was committed within ANSWER_S."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def end(committed: bool) -> None:
        if not over.done():
            over.set_result(committed)

    def answered(stream: int, content: bytes) -> None:
        response = raft_pb2.ProposeResponse.FromString(content)
        end(bool(response.offsets) and not response.HasField("error"))

    connection = Connection(
        PROPOSE,
        on_message=answered,
        on_end=lambda stream, succeeded: end(False),
        on_lost=lambda why: end(False),
    )
    host, _, port = address.rpartition(":")
    try:
        await loop.create_connection(lambda: connection, host, int(port))
        request = raft_pb2.ProposeRequest(id=1, values=[VALUES[0]])
        connection.send(connection.open(), request.SerializeToString())
        connection.flush()
        async with asyncio.timeout(ANSWER_S):
            return bool(await over)
    except (OSError, TimeoutError):
        return False
    finally:
        connection.close()


async def until_committed(addresses: Sequence[str]) -> None:
    """Ask these in turn until one commits a proposal."""
    deadline_s = time.monotonic() + FAILOVER_S
    while time.monotonic() < deadline_s:
        for address in addresses:
            if await proposed(address):
                return
        await asyncio.sleep(PAUSE_S)
    raise Refused(f"nothing was committed within {FAILOVER_S:.0f} s of the end of the leader")


async def ends(case: Case, folder: Path, kills: int) -> list[float]:
    """Seconds of each failover."""
    spent_s = []
    async with Quorum(folder, timeouts=case.timeouts) as quorum:
        for _ in range(kills):
            leader = await quorum.find_leader()
            await until_committed([quorum.addresses[leader]])
            await asyncio.sleep(random.uniform(*SETTLE_S))
            survivors = [
                address for number, address in enumerate(quorum.addresses) if number != leader
            ]
            began_s = time.perf_counter()
            end: Callable[[], None] = (
                quorum.members[leader].stop if case.is_graceful else quorum.members[leader].kill
            )
            end()
            await until_committed(survivors)
            spent_s.append(time.perf_counter() - began_s)
            if case.is_graceful and (code := quorum.members[leader].wait(FAILOVER_S)):
                raise Refused(f"exit code {code}: {quorum.members[leader].complaints()}")
            quorum.restart(leader)
    return spent_s


def distribution(case: Case, spent_s: list[float]) -> dict[str, Any]:
    """What a row says."""
    ascending = sorted(spent_s)
    median_s = statistics.median(ascending)
    return {
        "case": case.name,
        "count": len(ascending),
        "min_s": round(ascending[0], 3),
        "median_s": round(median_s, 3),
        "p90_s": round(percentile(ascending, 0.9), 3),
        "max_s": round(ascending[-1], 3),
        "goal_median_s": case.goal_s,
        "met": median_s < case.goal_s,
        "all_s": [round(each, 3) for each in spent_s],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of each case")
    parser.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    parser.add_argument("--quick", action="store_true", help="two kills each, not stored")
    options = parser.parse_args(arguments)
    rows = []
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="quorumlog-failover-", dir=options.dir) as folder:
            work = ends(case, Path(folder), 2 if options.quick else options.kills)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                rows.append(distribution(case, runner.run(work)))
        row = rows[-1]
        print(
            f"{case.name:<28} min {row['min_s']:.3f}  median {row['median_s']:.3f}"
            f"  p90 {row['p90_s']:.3f}  max {row['max_s']:.3f} s  (goal {case.goal_s})",
            flush=True,
        )
    if not options.quick:
        keep("raft_failover", {**machine(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
