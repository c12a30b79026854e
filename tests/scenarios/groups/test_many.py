"""A thousand members on five thousand partitions: each partition has one owner, and many
simultaneous leaves cost time linear in their number."""

from time import process_time
from typing import Final

import pytest
from tests.unit.broker.groups.consumer.play import START_MS, cluster

from quorumlog.broker.coordinator.decision import Answered, Ticket
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.records import Partitions
from quorumlog.broker.groups.requests import ConsumerBeat, ConsumerHeartbeat
from quorumlog.broker.groups.shard import GroupShard
from quorumlog.storage.producer_state import ProducerLimits

pytestmark = pytest.mark.slow

MEMBERS: Final = 1_000
PARTITIONS: Final = 5_000
CPU_S_MAX: Final = 20.0


class Crowd:
    """Members of one group in a shard, each with its assignment."""

    def __init__(self) -> None:
        self.config = GroupConfig()
        self.image = cluster({"t": PARTITIONS})
        self.now_ms = START_MS
        self.shard = GroupShard(self.config, lambda: "drawn", ProducerLimits())
        self.shard.loaded(self.image, self.now_ms)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self._tickets = 0

    def beat(self, member_id: str) -> None:
        """Send one heartbeat and apply the response: release and take partitions at once."""
        epoch = self.epochs.get(member_id, 0)
        self._tickets += 1
        request = ConsumerHeartbeat(
            group="g",
            member_id=member_id,
            member_epoch=epoch,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=-1 if epoch else 60_000,
            topics=None if epoch else frozenset({"t"}),
            owned=self.owned.get(member_id, {}),
        )
        decision = self.shard.handle(Ticket(self._tickets), request, self.image, self.now_ms)
        (reply,) = decision.replies
        assert isinstance(reply, Answered), reply
        outcome: ConsumerBeat = reply.outcome
        self.epochs[member_id] = outcome.member_epoch
        if outcome.assignment is not None:
            self._take(member_id, outcome.assignment)

    def _take(self, member_id: str, assignment: Partitions) -> None:
        """Release partitions that are not assigned, then take new ones: no other member may have
        them."""
        self.drop(member_id)
        self.owned[member_id] = assignment
        for topic, some in assignment.items():
            for index in some:
                owner = self.owners.setdefault((topic, index), member_id)
                assert owner == member_id, f"{index} is assigned to {member_id} and {owner}"

    def drop(self, member_id: str) -> None:
        """Release all partitions of a member."""
        for topic, some in self.owned.pop(member_id, {}).items():
            for index in some:
                del self.owners[topic, index]

    def settle(self, members: list[str], rounds: int) -> None:
        """Send heartbeats of all members until every partition has an owner."""
        for _ in range(rounds):
            self.now_ms += 5_000
            self.shard.expire(self.now_ms, self.image)
            for member_id in members:
                self.beat(member_id)
            counts = {sum(map(len, had.values())) for had in self.owned.values()}
            if len(self.owners) == PARTITIONS and counts == {PARTITIONS // len(members)}:
                return
        raise AssertionError(f"{len(self.owners)} of {PARTITIONS} are owned after {rounds} rounds")


def test_a_thousand_members_share_five_thousand_partitions_and_half_of_them_die() -> None:
    crowd, began_s = Crowd(), process_time()
    members = [f"m{number:04}" for number in range(MEMBERS)]
    crowd.settle(members, rounds=12)
    alive = members[::2]
    for member_id in members[1::2]:
        crowd.drop(member_id)
    end_ms = crowd.now_ms + crowd.config.consumer_session_ms + 1_000
    while crowd.now_ms < end_ms:
        crowd.now_ms += 5_000
        crowd.shard.expire(crowd.now_ms, crowd.image)
        for member_id in alive:
            crowd.beat(member_id)
    crowd.settle(alive, rounds=12)
    spent_s = process_time() - began_s
    assert spent_s < CPU_S_MAX, f"{spent_s:.1f} s"
