"""The faults of a chaos run: how each kind begins, continues and is repaired.

A fault affects one node, so that a majority stays available; only `blackout` stops all of them.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from quorumlog.clients.log import AsyncLog
from quorumlog.errors import QuorumlogError
from quorumlog.testing.checkers import Place

from .chaos_links import CLIENTS, Cut
from .chaos_nodes import CAN_LIMIT_MEMORY, ChaosNodes, eventually
from .fault_library import NodeFaults
from .packet_relay import Impairment

MOVE_S: Final = 300.0  # until all partitions have moved
SPANS_S: Final = (1.0, 6.0)  # minimum duration of a fault


class Kind(StrEnum):
    """The kinds of faults. DEAF, MUTE and BRIDGE need links that can be cut in one direction."""

    KILL = "kill"  # SIGKILL
    STOP = "stop"  # an orderly stop, and a start later
    PAUSE = "pause"  # SIGSTOP, and SIGCONT later
    ISOLATE = "isolate"  # disconnected from all nodes, and sometimes from the clients
    MUTE = "mute"  # other nodes receive nothing from it
    DEAF = "deaf"  # it receives nothing from other nodes
    BRIDGE = "bridge"  # no traffic between two nodes, in both directions or in one
    CLIENTS = "clients"  # no traffic between the node and the clients; the links between nodes work
    LOSS = "packet loss"  # packets of a node are lost and reordered
    DELAY = "network delay"  # packets of a node are late, with jitter
    SLOW = "slow disk"  # every sync takes longer
    FULL = "full disk"  # the disk has no free byte
    DISK = "disk errors"  # writes or syncs fail with EIO, or writes are short; a restart follows
    CLOCK = "clock jumps"  # the wall clock jumps ahead or back; the monotonic clock does not
    MEMORY = "memory limit"  # allocations fail; a restart follows
    ROLL = "rolling restart"  # all nodes in turn, in order
    MOVE = "reassignment"  # replicas are removed and added again, one on a node that is killed
    BLACKOUT = "blackout"  # all nodes are killed


KINDS: Final = tuple(Kind)
ONE_BY_ONE: Final = frozenset({Kind.MUTE, Kind.DEAF, Kind.BRIDGE})
IMPAIRMENTS: Final[dict[Kind, Sequence[Impairment]]] = {
    Kind.LOSS: [Impairment(lost=percent, reordered=10) for percent in (2, 5, 10)],
    Kind.DELAY: [Impairment(delay_ms=ms, jitter_ms=ms // 2) for ms in (20, 100, 300)],
}
NODE_FAULTS: Final[dict[Kind, Sequence[NodeFaults]]] = {
    Kind.SLOW: [NodeFaults(sync_ms=ms) for ms in (50, 300, 1_000)],
    Kind.DISK: [
        NodeFaults(sync_errors=20),
        NodeFaults(write_errors=5),
        NodeFaults(short_writes=50),
    ],
    Kind.CLOCK: [NodeFaults(wall_clock_s=s) for s in (-45 * 60, -60, 120, 3 * 3_600)],
}
"""A broker with a wall clock more than an hour behind rejects records by
`message.timestamp.after.max.ms`."""
HEADROOM_MIB: Final = (0, 2, 8)
"""Memory that a node can still allocate under a limit."""
LARGE_TOPIC: Final = "large"
LARGE_COUNT: Final = 40
LARGE_BYTES: Final = 500_000
UNSERVED: Final = frozenset({Kind.CLIENTS, Kind.FULL, Kind.BLACKOUT})
"""Faults under which a partition may have a live leader that clients cannot use."""


@dataclass(slots=True)
class Faults:
    """Starts and ends faults, one at a time."""

    nodes: ChaosNodes
    drawn: random.Random
    log: AsyncLog  # of an operator
    places: Sequence[Place]
    happened: Counter[Kind] = field(default_factory=Counter)
    ended: Counter[Kind] = field(default_factory=Counter)  # faults that ended the node
    victim: int = 0  # of the current fault; 0: no single node
    span_s: float = 0.0
    degree: str = ""  # of the current fault: the drawn parameters

    def round_of(self, kinds: Sequence[Kind]) -> list[Kind]:
        """Return each kind that this machine supports once, in random order."""
        found = [kind for kind in kinds if self._is_possible(kind)]
        assert found, f"none of {', '.join(kinds)} can run here: {self.nodes.skipped}"
        self.drawn.shuffle(found)
        return found

    async def inflict(self, kind: Kind) -> bool:
        """Begin a fault. Return True if every partition must be served while it lasts."""
        self.happened[kind] += 1
        self.span_s = self.drawn.uniform(*SPANS_S)
        self.victim = self.drawn.choice(self.nodes.shape.numbers)
        self.degree = ""
        links, victim = self.nodes.links, self.victim
        match kind:
            case Kind.KILL:
                self.nodes.nodes[victim].kill()
            case Kind.STOP:
                await self.nodes.stop(victim)
            case Kind.PAUSE:
                self.nodes.nodes[victim].pause()
            case Kind.ISOLATE | Kind.MUTE | Kind.DEAF | Kind.BRIDGE | Kind.CLIENTS:
                links.cut(self._cuts(kind))
                return links.can_cut and kind not in UNSERVED
            case Kind.LOSS | Kind.DELAY | Kind.SLOW | Kind.DISK | Kind.CLOCK | Kind.MEMORY:
                self._impair(kind)
            case Kind.FULL:
                self.victim = self.nodes.small
                await asyncio.to_thread(self.nodes.fill)
            case Kind.ROLL | Kind.MOVE:
                self.victim = 0
            case Kind.BLACKOUT:
                self.victim = 0
                for node in self.nodes.nodes.values():
                    node.kill()
        return kind not in UNSERVED

    async def go_on(self, kind: Kind) -> None:
        """Run the middle part of a fault: its steps, or a pause."""
        match kind:
            case Kind.ROLL:
                await self._roll()
            case Kind.MOVE:
                await self._move()
            case Kind.CLOCK:
                await asyncio.sleep(self.span_s / 2)
                self._impair(kind)
                await asyncio.sleep(self.span_s / 2)
            case Kind.MEMORY:
                await self._send_large()
                await asyncio.sleep(self.span_s)
            case _:
                await asyncio.sleep(self.span_s)

    async def mend(self, kind: Kind) -> None:
        """End the fault; afterwards every node serves."""
        match kind:
            case Kind.KILL | Kind.STOP:
                await self.nodes.start(self.victim)
            case Kind.PAUSE:
                self.nodes.nodes[self.victim].resume()
            case (
                Kind.ISOLATE
                | Kind.MUTE
                | Kind.DEAF
                | Kind.BRIDGE
                | Kind.CLIENTS
                | Kind.LOSS
                | Kind.DELAY
            ):
                self.nodes.links.heal()
            case Kind.SLOW | Kind.CLOCK:
                self.nodes.set_faults(self.victim, NodeFaults())
            case Kind.DISK | Kind.MEMORY:  # failed logs accept no appends until a restart
                self.nodes.set_faults(self.victim, NodeFaults())
                await self._restart(kind)
            case Kind.FULL:
                self.nodes.empty()
                if self.nodes.nodes[self.victim].ended() is not None:
                    await self._restart(kind)
            case Kind.ROLL | Kind.MOVE:
                pass
            case Kind.BLACKOUT:
                await self.nodes.start(*self.nodes.shape.numbers)

    async def spread(self) -> None:
        """Elect preferred leaders where possible, so that every node leads partitions."""
        with suppress(QuorumlogError):
            await self.log.admin.elect_leaders(self.places)

    # --- inside --------------------------------------------------------------------------------

    def _cuts(self, kind: Kind) -> list[Cut]:
        """Draw the links to cut."""
        others = self._others(self.victim)
        match kind:
            case Kind.MUTE:
                return _out(self.victim, others)
            case Kind.DEAF:
                return _in(self.victim, others)
            case Kind.BRIDGE:
                other = [self.drawn.choice(others)]
                one, back = _out(self.victim, other), _in(self.victim, other)
                return self.drawn.choice(([*one, *back], one, back))
            case Kind.CLIENTS:
                others = [CLIENTS]
            case _:
                others += [CLIENTS] if self.drawn.random() < 0.5 else []
        return [*_out(self.victim, others), *_in(self.victim, others)]

    def _impair(self, kind: Kind) -> None:
        """Draw a fault of the kind and apply it to the current node."""
        nodes, victim = self.nodes, self.victim
        if kind in IMPAIRMENTS:
            impairment = self.drawn.choice(IMPAIRMENTS[kind])
            nodes.links.impair(victim, impairment)
            self.degree = str(impairment)
        elif kind in NODE_FAULTS:
            faults = self.drawn.choice(NODE_FAULTS[kind])
            nodes.set_faults(victim, faults)
            self.degree = str(faults)
        else:
            headroom_mib = self.drawn.choice(HEADROOM_MIB)
            nodes.limit_memory(victim, headroom_mib << 20)
            self.degree = f"{headroom_mib} MiB more"

    async def _send_large(self) -> None:
        """Send records that need more memory than the limited node has. They may fail: the checkers
        ignore the topic."""
        with suppress(QuorumlogError):
            await self.log.admin.create_topic(
                LARGE_TOPIC, partitions=6, replication=3, if_not_exists=True
            )
            async with self.log.producer(delivery_timeout_ms=6_000) as producer:
                for number in range(LARGE_COUNT):
                    await producer.send(LARGE_TOPIC, bytes(LARGE_BYTES), partition=number % 6)

    def _is_possible(self, kind: Kind) -> bool:
        match kind:
            case Kind.SLOW | Kind.DISK | Kind.CLOCK:
                return self.nodes.can_fault
            case Kind.LOSS | Kind.DELAY:
                return not self.nodes.links.no_relay
            case Kind.MEMORY:
                return CAN_LIMIT_MEMORY
            case Kind.FULL:
                return bool(self.nodes.small)
            case _:
                return self.nodes.links.can_cut or kind not in ONE_BY_ONE

    def _others(self, number: int) -> list[int]:
        return [other for other in self.nodes.shape.numbers if other != number]

    async def _restart(self, kind: Kind) -> None:
        """Kill the node if its fault has not ended it, and start it again."""
        node = self.nodes.nodes[self.victim]
        self.ended[kind] += node.ended() is not None
        node.kill()
        if kind is Kind.MEMORY:
            self.nodes.excuse(self.victim)
        await self.nodes.start(self.victim)

    async def _roll(self) -> None:
        for number in self.nodes.shape.numbers:
            await self.nodes.stop(number)
            await self.nodes.start(number)
            await self._wait_in_sync()

    async def _move(self) -> None:
        """Remove a replica of each partition and add it again; kill a node with an added
        replica."""
        brokers = self.nodes.shape.broker_numbers
        orders = {place: self.drawn.sample(brokers, len(brokers)) for place in self.places}
        await self._wait_in_sync()
        await self._ask({place: order[:-1] for place, order in orders.items()})
        await self._wait_moved()
        await self._ask({place: order[::-1] for place, order in orders.items()})
        if self.drawn.random() < 0.5:
            added = self.drawn.choice(sorted({order[-1] for order in orders.values()}))
            self.nodes.nodes[added].kill()
            await asyncio.sleep(self.span_s)
            await self.nodes.start(added)
        await self._wait_moved()
        await self._wait_in_sync()

    async def _ask(self, targets: dict[Place, list[int]]) -> None:
        outcomes = await self.log.admin.reassign_partitions(targets)
        errors = [one for one in outcomes if one.error is not None]
        assert not errors, f"a reassignment was rejected: {errors}"

    async def _wait_moved(self) -> None:
        async def is_over() -> bool:
            return not await self.log.admin.list_reassignments()

        await eventually(is_over, within_s=MOVE_S, why="all partitions are moved")

    async def _wait_in_sync(self) -> None:
        names = sorted({topic for topic, _ in self.places})

        async def is_in_sync() -> bool:
            try:
                topics = await self.log.admin.describe_topics(names)
            except QuorumlogError:
                return False
            states = [state for topic in topics for state in topic.partitions]
            return all(set(state.isr) == set(state.replicas) for state in states)

        await eventually(is_in_sync, within_s=MOVE_S, why="all replicas are in sync")


def _out(number: int, others: Sequence[int]) -> list[Cut]:
    return [(number, other) for other in others]


def _in(number: int, others: Sequence[int]) -> list[Cut]:
    return [(other, number) for other in others]
