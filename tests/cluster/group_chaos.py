"""Chaos test of a consumer group: five member processes, 20 partitions and three nodes, while
members join, leave and are killed, and coordinators fail.

`python -m tests.cluster.group_chaos --events 100` runs it and prints a report in JSON. It fails if
no member processed an acknowledged record, if the members' records contradict one owner of each
partition at a time, if a member commits a record that no member processed, if a member exits, or if
the group has not committed everything at the end.
"""

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.simulation.levels.groups.checker import check_found, check_owners
from tests.simulation.levels.groups.history import GroupHistory, MemberIncarnation

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime, real
from quorumlog.testing.checkers import Place

from .chaos_links import links_for
from .chaos_nodes import COMBINED, ChaosNodes, eventually
from .group_member import BEAT_MS, GROUP, REBALANCE_MS, SESSION_MS, TOPIC

ROOT: Final = Path(__file__).resolve().parents[2]
MEMBERS: Final = 5
PARTITIONS: Final = 20
SETTLE_S: Final = 300.0
END_S: Final = 180.0  # until a member that is stopped has ended
SETTINGS: Final[dict[str, object]] = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": BEAT_MS,
    "offsets.topic.num.partitions": 3,
}


@dataclass(slots=True)
class GroupChaos:
    """One chaos run."""

    folder: Path
    events: int
    seed: int
    pause_s: tuple[float, float] = (0.2, 1.5)
    happened: Counter[str] = field(default_factory=Counter)
    ends: dict[Place, int] = field(default_factory=dict)  # end offsets of the acknowledged records
    _members: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _deaths: list[tuple[int, str]] = field(default_factory=list)  # time of kill, file stem
    _is_over: bool = False

    async def run(self, runtime: Runtime) -> dict[str, Any]:
        """Start everything, run the events, and check. Return the report."""
        with links_for(COMBINED.numbers) as links:
            nodes = ChaosNodes(self.folder, COMBINED, links, settings=SETTINGS)
            try:
                await asyncio.to_thread(nodes.form)
                await nodes.start(*COMBINED.numbers)
                return await self._run(runtime, nodes)
            finally:
                for process in self._members.values():
                    process.kill()
                    process.wait()
                await asyncio.to_thread(nodes.kill_all)

    async def _run(self, runtime: Runtime, nodes: ChaosNodes) -> dict[str, Any]:
        began_s = time.monotonic()
        async with make_log(runtime, nodes.bootstrap) as log:
            await log.admin.create_topic(TOPIC, partitions=PARTITIONS, replication=3)
            producing = asyncio.create_task(self._produce(log))
            rng = random.Random(self.seed)
            for number in range(MEMBERS):
                self._join(nodes, f"m{number}")
            for _ in range(self.events):
                await asyncio.sleep(rng.uniform(*self.pause_s))
                await self._happen(nodes, log, rng)
            for number in range(MEMBERS):
                if f"m{number}" not in self._members:
                    self._join(nodes, f"m{number}")
            self._is_over = True
            await producing
            await eventually(
                lambda: self._is_done(log), within_s=SETTLE_S, why="all is worked on and committed"
            )
            for name in list(self._members):
                await self._leave(name)
        nodes.check_up()
        history = self._judge()
        return {
            "seconds": round(time.monotonic() - began_s, 1),
            "seed": self.seed,
            "events": dict(self.happened),
            "records": sum(self.ends.values()),
            "lives": len(history.incarnations),
            "claims": len(history.claims),
            "worked": sum(one.end - one.start for one in history.worked),
            "starts": nodes.starts,
        }

    async def _produce(self, log: AsyncLog) -> None:
        """Write numbered records to every partition, a few times per second."""
        number = 0
        async with log.producer(linger_ms=5) as producer:
            while not self._is_over:
                given = [
                    await producer.send(TOPIC, b"%d" % (number + index), partition=index)
                    for index in range(PARTITIONS)
                ]
                number += PARTITIONS
                for delivery in given:
                    stored = await delivery
                    place = (TOPIC, stored.partition)
                    self.ends[place] = max(self.ends.get(place, 0), stored.offset + 1)
                await asyncio.sleep(0.1)

    # --- events --------------------------------------------------------------------------------

    async def _happen(self, nodes: ChaosNodes, log: AsyncLog, rng: random.Random) -> None:
        name = f"m{rng.randrange(MEMBERS)}"
        if rng.random() < 0.15:
            await self._fail_over(nodes, log, is_kill=rng.random() < 0.5)
            self.happened["failover"] += 1
        elif name not in self._members:
            self._join(nodes, name)
            self.happened["join"] += 1
        elif rng.random() < 0.5:
            await self._leave(name)
            self.happened["leave"] += 1
        else:
            self._kill(name)
            self.happened["kill"] += 1

    def _join(self, nodes: ChaosNodes, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._members[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.group_member"),
                    *(nodes.bootstrap, str(self.folder), name, str(PARTITIONS)),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    async def _leave(self, name: str) -> None:
        process = self._members.pop(name)
        self._check_alive(name, process)
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, END_S)
        # A process that was just started has no signal handler yet.
        assert code in (0, -signal.SIGTERM), f"{name} ended with {code}: {self._said(name)}"
        self._deaths.append((time.monotonic_ns(), f"{name}-{process.pid}"))

    def _kill(self, name: str) -> None:
        process = self._members.pop(name)
        self._check_alive(name, process)
        self._deaths.append((time.monotonic_ns(), f"{name}-{process.pid}"))
        process.kill()
        process.wait()

    async def _fail_over(self, nodes: ChaosNodes, log: AsyncLog, *, is_kill: bool) -> None:
        """Kill or stop the group's coordinator, and start it again."""
        try:
            number = (await log.admin.describe_group(GROUP)).coordinator
        except QuorumlogError:
            number = COMBINED.numbers[0]  # no member has joined yet
        if is_kill:
            await asyncio.to_thread(nodes.nodes[number].kill)
        else:
            await nodes.stop(number)
        await nodes.start(number)

    def _check_alive(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        code = process.poll()
        assert code is None, f"{name} exited with {code}: {self._said(name)}"

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-3_000:]

    async def _is_done(self, log: AsyncLog) -> bool:
        for name, process in self._members.items():
            self._check_alive(name, process)
        try:
            group = await log.admin.describe_group(GROUP)
        except QuorumlogError:
            return False
        committed = {(one.topic, one.partition): one.committed for one in group.offsets}
        return len(group.members) == MEMBERS and all(
            committed.get(place) == end for place, end in self.ends.items()
        )

    # --- checks --------------------------------------------------------------------------------

    def _judge(self) -> GroupHistory:
        """Merge the records of all members by time, and check them. Raise Violation."""
        rows: list[tuple[int, str, dict[str, Any]]] = []
        for path in sorted(self.folder.glob("m*-*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # truncated by the kill
                rows.append((row.pop("at"), path.stem, row))
        rows += [(at, stem, {"do": "killed"}) for at, stem in self._deaths]
        rows.sort(key=lambda row: row[0])
        clock = [0]
        history = GroupHistory(now_ns=lambda: clock[0])
        lives: dict[str, MemberIncarnation] = {}
        for at, stem, row in rows:
            clock[0] = at
            _replay(history, lives, stem, row)
        check_found(history)
        check_owners(history.claims)
        for place, end in self.ends.items():
            done_to = history.done_to(GROUP, place)
            assert done_to == end, f"{place} is processed up to {done_to} of {end}"
        return history


def _replay(
    history: GroupHistory, lives: dict[str, MemberIncarnation], stem: str, row: dict[str, Any]
) -> None:
    """Replay one line of a member."""
    life = lives.get(stem)
    if life is None:
        life = lives[stem] = history.life(
            GROUP, stem, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )
    what = row.pop("do")
    if "places" in row:
        row["places"] = [(topic, index) for topic, index in row["places"]]
    if what == "killed":
        life.ends()
    elif life.is_over:
        pass  # between the record of its kill and its end
    elif what == "processed":
        history.processed(life, (row["place"][0], row["place"][1]), row["start"], row["end"])
    elif what == "send_commit":
        history.send_commit(GROUP, stem, (row["place"][0], row["place"][1]), row["offset"])
    else:
        getattr(life, what)(**row)


def run_group_chaos(
    folder: Path, *, events: int, seed: int, pause_s: tuple[float, float] = (0.2, 1.5)
) -> dict[str, Any]:
    """Run the test in a folder. Raise AssertionError with the failure."""
    chaos = GroupChaos(folder, events, seed, pause_s)
    return real.run(chaos.run, name="group chaos")


def main() -> int:
    """Parse the command line, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.group_chaos")
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        report = run_group_chaos(Path(name), events=options.events, seed=options.seed)
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
