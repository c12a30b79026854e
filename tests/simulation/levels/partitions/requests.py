"""Requests of clients with older, current and newer metadata, at any broker.

Rules: a leader epoch fences a request (KIP-320); the high watermark that leaders return to readers
never decreases (KIP-207); a reader is sent to an in-sync replica in its rack that has its offset
(KIP-392); a mirror topic takes records of the mirror alone; a leader that may have been replaced
accepts acks=all alone; operators see every replica once, with a reason for each one out of sync.
"""

from collections.abc import Callable
from typing import Final

from quorumlog.broker.isr import ReplicaStatus
from quorumlog.broker.partition import Partition
from quorumlog.broker.partition_leader import PartitionLeader
from quorumlog.broker.purgatory import Acks
from quorumlog.errors import (
    FencedLeaderEpoch,
    MirrorTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    NotMirror,
    OffsetNotAvailable,
    Overloaded,
    QuorumlogError,
    UnknownLeaderEpoch,
)
from quorumlog.ids import NO_NODE

from ...checkers.violation import Violation
from .broker import ModelBroker, Place
from .world import PartitionWorld

SECOND_US: Final = 1_000_000


class ClientRequests:
    """Requests that change nothing, and the checks of their answers."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world = world
        # By partition: the largest high watermark returned to a reader, with its leader epoch.
        self._returned: dict[Place, tuple[int, int]] = {}

    def again(self) -> None:
        """Schedule requests until the run heals."""
        rate = self.world.options.requests_per_s
        if rate:
            self.world.at(self.world.random.expovariate(rate) * SECOND_US, self._request)

    def _request(self) -> None:
        if not self.world.is_faulty:
            return
        self.again()
        random = self.world.random
        broker = self.world.brokers[random.choice(sorted(self.world.brokers))]
        if broker.is_alive and broker.replicas:
            place = random.choice(sorted(broker.replicas))
            self.ask(broker, place, random.choice((None, -1, 0, 0, 1)))

    def ask(self, broker: ModelBroker, place: Place, ahead: int | None) -> None:
        """Send all kinds of requests; `ahead` is the leader epoch of the client's metadata after
        that of the broker's, None: the requests have none."""
        partition = broker.replicas[place]
        state = broker.image.partition(*place)
        assert state is not None, f"{partition.name}: a replica without metadata"
        epoch = None if ahead is None else state.leader_epoch + ahead
        expected: type[QuorumlogError] | None = None
        if ahead:
            expected = FencedLeaderEpoch if ahead < 0 else UnknownLeaderEpoch
        is_leader = state.leader == broker.node_id
        of_leader = expected or (None if is_leader else NotLeaderOrFollower)
        of_reader = of_leader if is_leader or state.leader == NO_NODE else expected
        self._expect(partition, "a produce request", of_leader, partition.check_leader, epoch)
        self._expect(partition, "a fetch", of_reader, partition.check_readable, epoch)
        leader = partition.leader
        if (leader is not None) is not is_leader:
            raise Violation(
                "Role", f"{partition.name}: leads {leader is not None}, not as in {state}"
            )
        if leader is not None:
            self._admission(broker, place, leader)
            self._committed(place, leader)
            self._statuses(broker, place, leader)
            self._preferred(broker, place, leader)

    def _expect(
        self,
        partition: Partition,
        what: str,
        expected: type[QuorumlogError] | None,
        call: Callable[[int | None], object],
        epoch: int | None,
    ) -> None:
        found: type[Exception] | None = None
        try:
            call(epoch)
        except QuorumlogError as error:
            found = type(error)
        if found is not expected:
            raise Violation(
                "Fencing",
                f"{partition.name}: {what} with epoch {epoch} at epoch {partition.leader_epoch} of"
                f" a broker that follows {partition.followed} gets {found}, not {expected}",
            )

    def _admission(self, broker: ModelBroker, place: Place, leader: PartitionLeader) -> None:
        is_mirror = self.world.is_mirror(place[0][0] - 1)
        is_full = self.world.waits.count(broker, place) >= broker.waits_max
        is_short = len(leader.state.isr) < min(
            self.world.options.min_isr, len(leader.state.replicas)
        )
        for acks in Acks:
            for is_mirrored in (False, True):
                for lapsed in (False, True):
                    found: type[QuorumlogError] | None = None
                    try:
                        leader.admit(acks, lapsed=lapsed, is_mirrored=is_mirrored)
                    except QuorumlogError as error:
                        found = type(error)
                    allowed: set[type[QuorumlogError]] = set()
                    if is_mirror is not is_mirrored:
                        allowed = {MirrorTopic if is_mirror else NotMirror}
                    elif lapsed and acks is not Acks.ALL:
                        allowed = {NotLeaderOrFollower}
                    else:
                        if acks is Acks.ALL and is_short:
                            allowed.add(NotEnoughReplicas)
                        if acks is not Acks.NONE and is_full:
                            allowed.add(Overloaded)
                    if found not in allowed if allowed else found is not None:
                        raise Violation(
                            "Admission",
                            f"acks={acks.value} mirrored={is_mirrored} lapsed={lapsed} at"
                            f" {broker.node_id} gets {found}, not {allowed or 'an offset'}",
                        )

    def _committed(self, place: Place, leader: PartitionLeader) -> None:
        epoch, name = leader.state.leader_epoch, leader.isr.name
        began = leader.isr.epoch_start_offset
        try:
            mark = leader.check_committed()
        except OffsetNotAvailable:
            if leader.high_watermark >= began:
                raise Violation("OffsetNotAvailable", f"{name}: all is committed") from None
            return
        known, of_epoch = self._returned.get(place, (0, epoch))
        if epoch >= of_epoch:
            if mark < known and place not in self.world.checks.lossy:
                raise Violation(
                    "MonotonicOffsets",
                    f"{name}: epoch {epoch} returns {mark}, epoch {of_epoch} returned {known}",
                )
            self._returned[place] = mark, epoch

    def _statuses(self, broker: ModelBroker, place: Place, leader: PartitionLeader) -> None:
        state, name = leader.state, leader.isr.name
        statuses = leader.isr.replica_status(self.world.now_ms)
        if [each.node_id for each in statuses] != list(state.replicas):
            raise Violation("ReplicaStatus", f"{name}: {statuses} of {state.replicas}")
        end = broker.disk.log(place).end
        for each in statuses:
            in_sync = each.node_id in state.isr
            if each.in_sync is not in_sync or bool(each.reason) is in_sync:
                raise Violation("ReplicaStatus", f"{name}: {each} of ISR {state.isr}")
            if each.reason:
                self._check_reason(broker, place, leader, each)
            if each.node_id == broker.node_id:
                if (each.log_end_offset, each.caught_up_ms_ago) != (end, 0):
                    raise Violation("ReplicaStatus", f"{name}: {each} of a log up to {end}")
            elif each.node_id not in leader.isr.remotes:
                if (each.log_end_offset, each.caught_up_ms_ago) != (-1, -1):
                    raise Violation("ReplicaStatus", f"{name}: {each}, it has not fetched")
            elif each.log_end_offset < 0 or not -1 <= each.caught_up_ms_ago <= self.world.now_ms:
                raise Violation("ReplicaStatus", f"{name}: {each} at {self.world.now_ms} ms")

    def _check_reason(
        self, broker: ModelBroker, place: Place, leader: PartitionLeader, status: ReplicaStatus
    ) -> None:
        """Check that the reason of a replica out of sync is true."""
        registered = broker.image.brokers.get(status.node_id)
        remote = leader.isr.remotes.get(status.node_id)
        counted = -1
        if remote is not None:
            counted = leader.isr.end_of(remote)
        is_new = registered is not None and (
            remote is None or remote.broker_epoch != registered.epoch
        )
        is_active = registered is not None and registered.is_active
        behind = leader.isr.log_end_offset - counted
        expected = (
            ("is not registered", registered is None),
            ("is fenced or stopping", registered is not None and not is_active),
            ("has not fetched since", is_active and is_new),
            (f"is {behind} records behind", is_active and not is_new and behind > 0),
            ("has caught up", is_active and not is_new and behind <= 0),
        )
        for words, is_true in expected:
            if (words in status.reason) is not is_true:
                raise Violation(
                    "ReplicaStatus", f"{leader.isr.name}: {status}; {words!r} is {is_true}"
                )

    def _preferred(self, broker: ModelBroker, place: Place, leader: PartitionLeader) -> None:
        racks = self.world.options.racks
        log = broker.disk.log(place)
        if not racks:
            return
        random = self.world.random
        rack = random.choice(("", *(f"rack-{number}" for number in range(racks))))
        offset = random.randint(log.start, log.end)
        found = leader.preferred_replica(rack, offset)
        name = f"{leader.isr.name}: a reader of {offset} in {rack} at node {broker.node_id}"
        if found is None:
            return
        other = self.world.brokers[found]
        if not rack or rack == broker.rack or other.rack != rack:
            raise Violation("PreferredReplica", f"{name} is sent to {found} in {other.rack}")
        registered = broker.image.brokers.get(found)
        if found not in leader.state.isr or registered is None or not registered.is_active:
            raise Violation("PreferredReplica", f"{name} is sent to {found}, {leader.state}")
        held, current = other.disk.logs.get(place), other.replicas.get(place)
        if (
            current is not None
            and other.is_alive
            and other.broker_epoch == registered.epoch
            and current.leader_epoch == leader.state.leader_epoch
            and (held is None or offset > held.end)
        ):
            raise Violation("PreferredReplica", f"{name} is sent to {found}, which lacks it")

    def nearest(self, broker: ModelBroker, place: Place, leader: PartitionLeader) -> None:
        """Check that a reader is sent to the replica in its rack while all replicas are in sync
        and have everything."""
        racks = {self.world.brokers[node].rack for node in leader.state.replicas}
        end = broker.disk.log(place).end
        for rack in sorted(racks - {broker.rack, ""}):
            found = leader.preferred_replica(rack, end)
            if found is None or self.world.brokers[found].rack != rack:
                raise Violation("PreferredReplica", f"{leader.isr.name}: {rack} is sent to {found}")
