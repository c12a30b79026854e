"""Replica placement of new partitions: rack-aware, with even leaders and replicas.

Rules, in order of priority: no broker twice; no rack twice while another rack is free (KIP-36);
brokers lead equally many partitions of the topic, within one; brokers have equally many replicas,
if racks of equal size allow it. Ties are broken by a pseudo-random sequence seeded by the topic id.
So the other replicas of a broker's partitions are on many brokers, its leaderships spread when it
fails, and topics with one partition are not all placed on the first broker.

Replicas of other topics are ignored: otherwise a new broker would get all new topics, and with them
most of the load.

Cost: a few heap comparisons per replica, and one comparison per rack.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from ...errors import InvalidReplicationFactor
from ...ids import NodeId
from ...visible_text import count_text
from ..image import BrokerImage

AWAY_MAX: Final = 5  # brokers that an error names
_MASK: Final = (1 << 64) - 1


class Placer:
    """Places partitions one by one."""

    __slots__ = ("_followers", "_leaders", "_leads", "_racks", "_seed", "_takes", "_turn")

    def __init__(
        self,
        brokers: Iterable[BrokerImage],
        *,
        seed: int,
        present: Iterable[Sequence[NodeId]] = (),
    ) -> None:
        """`brokers` are the usable ones, `present` the replicas of the topic's existing partitions;
        `seed` breaks ties."""
        self._seed = seed & _MASK
        self._turn = 0  # number of draws
        self._racks = {broker.id: broker.rack for broker in brokers}
        leads, takes = Counter[NodeId](), Counter[NodeId]()
        for replicas in present:
            leads[replicas[0]] += 1
            takes.update(replicas)
        self._leads = {node: leads[node] for node in self._racks}  # preferred leaders per broker
        self._takes = {node: takes[node] for node in self._racks}  # replicas per broker
        # Heap entries may be stale: an entry is valid while its counts are the current ones.
        self._leaders = [self._leader_entry(node) for node in self._racks]
        self._followers: dict[str, list[tuple[int, int, int, NodeId]]] = {}  # by rack
        for node, rack in self._racks.items():
            self._followers.setdefault(rack, []).append(self._follower_entry(node))
        heapify(self._leaders)
        for entries in self._followers.values():
            heapify(entries)

    def place(self, replication_factor: int) -> tuple[NodeId, ...]:
        """Return the replicas of the next partition, the preferred leader first. The replication
        factor must not exceed the number of brokers."""
        count = len(self._racks)
        assert 1 <= replication_factor <= count, f"{replication_factor} replicas on {count} brokers"
        chosen = [self._next_leader()]
        in_rack = Counter((self._racks[chosen[0]],))
        while len(chosen) < replication_factor:
            node = self._next_follower(chosen, in_rack)
            in_rack[self._racks[node]] += 1
            chosen.append(node)
        self._leads[chosen[0]] += 1
        for node in chosen:
            self._takes[node] += 1
            heappush(self._leaders, self._leader_entry(node))
            heappush(self._followers[self._racks[node]], self._follower_entry(node))
        return tuple(chosen)

    def _next_leader(self) -> NodeId:
        while True:
            leads, takes, _, node = heappop(self._leaders)
            if (leads, takes) == (self._leads[node], self._takes[node]):
                return node

    def _next_follower(self, chosen: list[NodeId], in_rack: Counter[str]) -> NodeId:
        """Return the broker with the fewest replicas in the least used racks; among those, the one
        with the most leaderships, which will get fewer of them next."""
        best, best_rack = None, ""
        for rack, entries in self._followers.items():
            self._drop_stale(entries, chosen)
            if entries:
                entry = (in_rack[rack], entries[0])
                if best is None or entry < best:
                    best, best_rack = entry, rack
        assert best is not None, f"no broker left besides {chosen}"
        heappop(self._followers[best_rack])
        return best[1][-1]

    def _drop_stale(
        self, entries: list[tuple[int, int, int, NodeId]], chosen: list[NodeId]
    ) -> None:
        """Remove stale entries, and those of chosen brokers, which get new ones later."""
        while entries:
            takes, led, _, node = entries[0]
            if node not in chosen and (takes, -led) == (self._takes[node], self._leads[node]):
                return
            heappop(entries)

    def _leader_entry(self, node: NodeId) -> tuple[int, int, int, NodeId]:
        return self._leads[node], self._takes[node], self._draw(), node

    def _follower_entry(self, node: NodeId) -> tuple[int, int, int, NodeId]:
        return self._takes[node], -self._leads[node], self._draw(), node

    def _draw(self) -> int:
        """Return the next number of a SplitMix64 sequence, equal on every node and in every run."""
        self._turn += 1
        mixed = (self._seed + self._turn * 0x9E3779B97F4A7C15) & _MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        return mixed ^ mixed >> 31


def check_replication_factor(replication_factor: int, brokers: Iterable[BrokerImage]) -> None:
    """Raise InvalidReplicationFactor unless 1 <= replication_factor <= usable brokers."""
    if replication_factor < 1:
        raise InvalidReplicationFactor(
            f"the replication factor is {replication_factor}; it must be at least 1"
        )
    registered = sorted(brokers, key=lambda broker: broker.id)
    away = [broker for broker in registered if not broker.is_active]
    usable = count_text(len(registered) - len(away), "usable broker")
    if replication_factor > len(registered) - len(away):
        states = ", ".join(
            f"broker {broker.id} is {'fenced' if broker.fenced else 'stopping'}"
            for broker in away[:AWAY_MAX]
        )
        more = f" and {len(away) - AWAY_MAX} more" if len(away) > AWAY_MAX else ""
        absent = f" of {len(registered)}: {states}{more}" if away else ""
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} exceeds the {usable}{absent}; start more"
            " brokers or lower the replication factor"
        )
