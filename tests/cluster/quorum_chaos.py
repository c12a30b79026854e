"""Chaos test of three voter processes, killed, stopped and paused while clients write and read.

`python -m tests.cluster.quorum_chaos --minutes 5 --faults 200` runs it at length and prints a
report in JSON. It fails unless the clients' history is linearizable, the logs and states of all
voters are equal at the end, `check` finds no problem in any data directory, and the clients made
enough progress.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.wrappers_pb2 import BytesValue
from tests.kit.node_process import free_port
from tests.simulation.checkers.linearizability import linearizability_anomalies
from tests.simulation.checkers.models import Register
from tests.simulation.levels.quorum.clients import Notes, RegisterClient, RegisterWorkload

from quorumlog.errors import QuorumlogError
from quorumlog.ids import NodeId
from quorumlog.records.batch import iterate_batches
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.storage.inspect.directory_check import check
from quorumlog.testing.checkers import report

from .voter_process import DESCRIBE, Account, Spec, VoterProcess

CLIENTS: Final = 4
SETTLE_S: Final = 240.0
CALM_SHARE: Final = 0.25  # of the time without a new fault
DONE_A_SECOND_MIN: Final = 2.0
CALM_PART_MIN: Final = 0.02
"""The minimum rate of operations: absolute, and as a share of the rate without faults; one of the
two suffices. A run without progress proves nothing."""

HABITS: Final = RegisterWorkload(
    keys=20,
    pause_ms=(1, 20),
    timeout_ms=(200, 2_000),
    reads=0.4,
    swaps=0.3,
    value_size_max=200,
    burst_max=8,
)


@dataclass(slots=True)
class Chaos:
    """One chaos run."""

    folder: Path
    seconds: float
    faults: int
    seed: int
    happened: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)
    voters: list[VoterProcess] = field(default_factory=list)
    addresses: dict[NodeId, str] = field(default_factory=dict)
    _hurt: list[VoterProcess] = field(default_factory=list)  # and not yet repaired

    def make(self) -> None:
        """Create a run of three voters."""
        ports = {f"{node_id}": f"127.0.0.1:{free_port()}" for node_id in (1, 2, 3)}
        self.addresses = {NodeId(int(node_id)): address for node_id, address in ports.items()}
        for node_id in self.addresses:
            data_dir = str(self.folder / f"data-{node_id}")
            self.voters.append(VoterProcess(Spec(node_id, data_dir, ports), self.folder))

    async def run(self, runtime: Runtime) -> dict[str, object]:
        """Start everything, run the faults, wait until the voters are equal. Return the report."""
        self.make()
        try:
            return await self._run(runtime)
        finally:
            for voter in self.voters:
                voter.resume()
                voter.kill()

    async def _run(self, runtime: Runtime) -> dict[str, object]:
        for voter in self.voters:
            voter.start()
        for voter in self.voters:
            await asyncio.to_thread(voter.wait_ready)
        began_s = time.monotonic()
        async with runtime.tasks.scope("clients") as scope:
            for number in range(CLIENTS):
                client = RegisterClient(
                    runtime=runtime,
                    name=f"c{number}",
                    addresses=self.addresses,
                    workload=HABITS,
                    notes=self.notes,
                    entropy=runtime.entropy.stream(f"client/{number}"),
                    with_stream=number % 2 == 0,
                )
                scope.spawn(client.run(), name=client.name)
            await self._wait_progress(0)
            calm_s, calm = time.monotonic() - began_s, self.notes.history.completed_count
            await self._rage()
            elapsed_s = time.monotonic() - began_s
            self._check_up()
            done = self.notes.history.completed_count
            await self._wait_progress(done)
            self.notes.is_over = True
        accounts = await self._settle(runtime)
        for voter in self.voters:
            assert await asyncio.to_thread(voter.stop) == 0, voter.complaints()
        self._judge(accounts)
        done_a_second = done / elapsed_s
        enough = min(DONE_A_SECOND_MIN, CALM_PART_MIN * calm / calm_s)
        assert done_a_second >= enough, f"only {done_a_second:.2f} operations per second"
        return {
            "seconds": round(elapsed_s, 1),
            "faults": dict(self.happened),
            "starts": [voter.starts for voter in self.voters],
            "operations": len(self.notes.history),
            "done": self.notes.history.completed_count,
            "done_a_second": round(done_a_second, 1),
            "errors": dict(self.notes.errors),
            "log_end_offset": accounts[0].log_end_offset,
            "epoch": accounts[0].epoch,
        }

    # --- faults --------------------------------------------------------------------------------

    async def _rage(self) -> None:
        drawn = random.Random(self.seed)
        end_s = time.monotonic() + self.seconds
        span_s = self.seconds / self.faults
        under_way: set[asyncio.Task[None]] = set()
        for number in range(self.faults):
            if time.monotonic() > end_s + 10:
                break
            under_way.add(asyncio.create_task(self._fault(drawn)))
            for task in [task for task in under_way if task.done()]:
                under_way.remove(task)
                await task  # raises its failure
            rest_s = end_s - time.monotonic()
            left = self.faults - number
            pause_s = max(0.0, rest_s / left) * (1 + CALM_SHARE * (drawn.random() - 0.5))
            await asyncio.sleep(min(pause_s, 3 * span_s))
        await asyncio.gather(*under_way)

    async def _fault(self, drawn: random.Random) -> None:
        """Begin a fault of one available voter, and end it after a pause."""
        span_s = drawn.uniform(0.02, 1.5) * drawn.random()
        kind = drawn.choice(("kill", "kill", "stop", "pause", "pause"))
        free = [voter for voter in self.voters if voter not in self._hurt]
        if not free:
            return
        voter = drawn.choice(free)
        assert voter.ended() is None, f"a voter exited: {voter.complaints()}"
        self.happened[kind] += 1
        self._hurt.append(voter)
        await self._inflict(voter, kind, span_s)
        self._hurt.remove(voter)

    async def _inflict(self, voter: VoterProcess, kind: str, span_s: float) -> None:
        match kind:
            case "kill":
                voter.kill()
            case "stop":
                code = await asyncio.to_thread(voter.stop)
                # SIGTERM kills a process that has no signal handler yet.
                is_fine = code in (0, -signal.SIGTERM)
                assert is_fine, f"exit code of an orderly stop: {code}: {voter.complaints()}"
            case _:
                voter.pause()
                await asyncio.sleep(span_s)
                voter.resume()
                return
        await asyncio.sleep(span_s)
        voter.start()

    def _check_up(self) -> None:
        for voter in self.voters:
            assert voter.is_up, f"voter {voter.spec.node_id} is down"
            assert voter.ended() is None, f"a voter exited: {voter.complaints()}"

    # --- checks --------------------------------------------------------------------------------

    async def _wait_progress(self, done: int) -> None:
        end_s = time.monotonic() + SETTLE_S
        while self.notes.history.completed_count < done + 50:
            assert time.monotonic() < end_s, f"no progress: {self.notes.errors}"
            await asyncio.sleep(0.05)

    async def _settle(self, runtime: Runtime) -> list[Account]:
        """Wait until all voters have the same log and state; return their accounts."""
        end_s = time.monotonic() + SETTLE_S
        channels = [runtime.network.channel(address) for address in self.addresses.values()]
        while True:
            accounts: list[Account] = []
            with suppress(QuorumlogError):
                for channel in channels:
                    answer = await channel.call(DESCRIBE, BytesValue(), timeout_ms=10_000)
                    accounts.append(Account(**json.loads(answer.value)))
                one = accounts[0]
                if all(
                    (each.digest, each.applied_end) == (one.digest, one.log_end_offset)
                    for each in accounts
                ):
                    return accounts
            assert time.monotonic() < end_s, f"the voters stay different: {accounts}"
            await asyncio.sleep(0.1)

    def _judge(self, accounts: list[Account]) -> None:
        assert len({account.digest for account in accounts}) == 1, f"{accounts}"
        found = linearizability_anomalies(self.notes.history.operations(), Register())
        assert not found, report(found)
        known: dict[int, bytes] = {}
        for voter in self.voters:
            result = check(RealFiles(), voter.spec.data_dir)
            problems = [one for one in result.all_findings() if one.severity == "problem"]
            assert result.is_ok, f"{voter.spec.data_dir} has problems: {problems}"
            for path in Path(voter.spec.data_dir).glob("__cluster_metadata-0/*.log"):
                content = path.read_bytes()
                for position, header in iterate_batches(content):
                    batch = content[position : position + header.size]
                    there = known.setdefault(header.base_offset, batch)
                    assert there == batch, f"the logs differ at {header.base_offset}"


def run_chaos(folder: Path, *, seconds: float, faults: int, seed: int) -> dict[str, object]:
    """Run the test in a folder. Raise AssertionError with the failure."""
    chaos = Chaos(folder, seconds, faults, seed)
    return real.run(chaos.run, name="chaos")


def main() -> int:
    """Parse the command line, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.quorum_chaos")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults drawn")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run = partial(run_chaos, Path(folder), seconds=options.minutes * 60)
        print(json.dumps(run(faults=options.faults, seed=options.seed), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
