"""The last phase of a run: without faults and with fast messages, operations take a few messages
each, and wait for no timer.

Every limit is a number of hops: a message with what its receiver does at once. The times that
matter besides are `replica.lag.time.max.ms`, after which a silent follower leaves the ISR, and half
of it, the interval at which a leader looks (Kafka's `maybeShrinkIsr`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from quorumlog.broker.purgatory import Acks
from quorumlog.errors import NotEnoughReplicas, Overloaded
from quorumlog.ids import NO_NODE, NodeId
from quorumlog.metadata import ElectLeaders
from quorumlog.metadata.image import PartitionImage

from ...checkers.violation import Violation
from .broker import ModelBroker, Place
from .requests import ClientRequests
from .waits import Wait
from .world import PartitionWorld

HOPS_A_LAG: Final = 100
"""Hops in the shortest time after which a follower leaves the ISR: limits of hops are far below."""
HOPS_A_LAG_UNDER_LOAD: Final = 20
APPEND_HOPS: Final = 10
"""Of an append until its acknowledgement: its flush, the response to the waiting fetch, the flush
of the follower, its fetch, and the fetches that an earlier response kept."""
COMMIT_HOPS: Final = 16
"""Until every follower has the high watermark too."""
JOIN_HOPS: Final = 30
"""Until a follower that starts is in the ISR: registration, metadata, fetches, the ISR request."""
LEAD_HOPS: Final = 30
PARTITIONS_MAX: Final = 4  # that a phase appends to
SETTLE_HOPS: Final = 20
RETRY_HOPS: Final = 4  # before a refused fetch is repeated


class SteadyState:
    """The phase, after all replicas are in sync."""

    def __init__(self, world: PartitionWorld, requests: ClientRequests) -> None:
        self.world = world
        self.requests = requests
        options = world.options
        self._lag_us = 1_000 * options.lag_time_max_ms
        self._hop_us = 0

    def play(self) -> None:
        """Run the phase; raises Violation."""
        world = self.world
        slowest_us = max(world.options.latency_us[1], world.options.flush_us[1])
        world.options = replace(world.options, loss=0.0, late=0.0, timeout_ms=0)
        self._use_hops(self._lag_us // HOPS_A_LAG)
        for place, state in world.partitions():
            for node in state.replicas:
                world.traffic.fetch(node, world.brokers[node].life, place)  # without old timers
        self._wait(2 * slowest_us + SETTLE_HOPS * self._hop_us)
        self._must_be_prompt("all replicas are in sync")
        self._must_be_quiet()
        self._must_shrink_and_expand()
        self._must_fail_over()

    def _use_hops(self, hop_us: int) -> None:
        """Set the longest time of a message and of a flush."""
        fast = (hop_us // 4, hop_us)
        self._hop_us = hop_us
        self.world.options = replace(
            self.world.options,
            latency_us=fast,
            metadata_us=fast,
            flush_us=fast,
            session_timeout_ms=max(1, RETRY_HOPS * hop_us // 500),
        )

    # --- prompt and quiet ------------------------------------------------------------------------

    def _must_be_prompt(self, when: str) -> None:
        """Check that appends are acknowledged, and followers learn it, within a few messages."""
        world = self.world
        waits: list[tuple[ModelBroker, Wait]] = []
        places = [place for place, _ in world.partitions()]
        world.random.shuffle(places)
        for place in places[:PARTITIONS_MAX]:
            leader = self._leader(place)
            waits += [
                (leader, world.traffic.append(leader, place, acks))
                for acks in (Acks.LEADER, Acks.ALL)
            ]
        self._within(APPEND_HOPS, lambda: self._waiting(waits), f"{when}: acknowledgements")
        self._within(COMMIT_HOPS, lambda: self._behind(places), f"{when}: high watermarks")
        for place in places[:PARTITIONS_MAX]:
            leader = self._leader(place)
            self.requests.ask(leader, place, 0)
            led = leader.replicas[place].check_leader(None)
            self.requests.nearest(leader, place, led)
            statuses = led.isr.replica_status(world.now_ms)
            end = leader.disk.log(place).end
            for each in statuses:
                ago_us = 1_000 * each.caught_up_ms_ago
                if each.log_end_offset != end or not 0 <= ago_us <= self._lag_us:
                    raise Violation("ReplicaStatus", f"{led.isr.name}: {each}, the end is {end}")

    def _must_be_quiet(self) -> None:
        """Check that idle replicas send nothing, and stay in sync for however long."""
        world = self.world
        before = world.traffic.sent, world.isr.sent, world.controller.end
        self._wait(3 * self._lag_us)
        after = world.traffic.sent, world.isr.sent, world.controller.end
        if after != before:
            raise Violation(
                "Quiet", f"fetches, ISR requests and metadata of idle replicas: {before}, {after}"
            )

    # --- lagging replicas ------------------------------------------------------------------------

    def _must_shrink_and_expand(self) -> None:
        """Check under load that live followers stay in the ISR; that a silent one leaves it after
        the lag time, but only where it lacks records; and that it joins again at once."""
        world = self.world
        shared = [(place, state) for place, state in world.partitions() if len(state.isr) > 1]
        if not shared:
            return
        place, state = world.random.choice(shared)
        leader = self._leader(place)
        self._must_keep_up(leader, place)
        self._check_isr(place, state.isr, "under load")
        silent = world.random.choice([node for node in state.isr if node != leader.node_id])
        world.note("silent", silent, place[1])
        is_short = len(state.isr) - 1 < self._min_isr(state)
        world.brokers[silent].paused_until_us = world.now_us + 60 * 1_000_000
        wait = world.traffic.append(leader, place, Acks.ALL)
        self._wait(self._lag_us // 2 - self._hop_us)
        self._check_isr(place, state.isr, "before the lag time")
        if self._waiting([(leader, wait)]) == "":
            raise Violation("AckedEarly", f"node {silent} in the ISR has not fetched")
        self._wait(self._lag_us + JOIN_HOPS * self._hop_us + 3_000)
        left = tuple(node for node in state.isr if node != silent)
        self._check_isr(place, left, "after the lag time")
        for other, before in shared:
            if other != place:
                self._check_isr(other, before.isr, "without appends")
        if is_short:
            self._must_refuse(leader, place)
        elif self._waiting([(leader, wait)]):
            raise Violation("Prompt", f"{place[1]}: no acknowledgement after the ISR change")
        reasons = leader.replicas[place].check_leader(None).isr.replica_status(world.now_ms)
        if [each.node_id for each in reasons if each.reason] != [silent]:
            raise Violation("ReplicaStatus", f"{place[1]}: {reasons}, node {silent} is silent")
        world.resume(world.brokers[silent])
        if is_short:
            self._wait(JOIN_HOPS * self._hop_us)
        else:  # above a leader without followers the high watermark would run ahead of the replica
            self._load(leader, place, JOIN_HOPS * self._hop_us)
        self._check_isr(place, state.isr, "after a silent replica fetched again")
        self._wait(COMMIT_HOPS * self._hop_us)
        self._must_be_prompt("a replica joined again")

    def _must_keep_up(self, leader: ModelBroker, place: Place) -> None:
        """Append for longer than the lag time without a pause, so that no follower ever has
        everything."""
        slow_us = self._lag_us // HOPS_A_LAG_UNDER_LOAD
        self._use_hops(slow_us)
        flush_us = (2 * slow_us, 3 * slow_us)  # slower than the fetches
        self.world.options = replace(self.world.options, flush_us=flush_us)
        self._load(leader, place, self._lag_us * 2)
        self._use_hops(self._lag_us // HOPS_A_LAG)
        self._wait(APPEND_HOPS // 2 * slow_us)

    def _load(self, leader: ModelBroker, place: Place, span_us: int) -> None:
        """Append twice a hop; each append must be acknowledged in time."""
        world, waits = self.world, list[Wait]()
        until_us, started = world.now_us + span_us, list[int]()
        while world.now_us < until_us:
            try:
                waits.append(world.traffic.append(leader, place, Acks.ALL))
                started.append(world.now_us)
            except Overloaded:
                assert world.options.waits_max, "no limit of waits was drawn"
            except NotEnoughReplicas as error:
                raise Violation("IsrMembers", f"{place[1]}, under load: {error}") from None
            self._wait(self._hop_us // 2)
            overdue_us = world.now_us - 2 * APPEND_HOPS * self._hop_us
            late = [wait for wait, at_us in zip(waits, started, strict=True) if at_us < overdue_us]
            if late and self._waiting([(leader, late[-1])]):
                raise Violation("Prompt", f"{place[1]}: an append waits under load")

    def _must_refuse(self, leader: ModelBroker, place: Place) -> None:
        try:
            self.world.traffic.append(leader, place, Acks.ALL)
        except NotEnoughReplicas:
            return
        raise Violation("MinIsr", f"{place[1]}: an append was accepted with a small ISR")

    # --- failed brokers --------------------------------------------------------------------------

    def _must_fail_over(self) -> None:
        """Check that a broker's failure and return take a few messages each."""
        world = self.world
        node = world.random.choice(sorted(world.brokers))
        broker = world.brokers[node]
        held = [(place, s) for place, s in world.partitions() if node in s.replicas]
        waits = []
        for place, state in held[:PARTITIONS_MAX]:
            if state.leader != node and len(state.isr) - 1 >= self._min_isr(state):
                leader = self._leader(place)
                broker.paused_until_us = world.now_us + self._lag_us
                waits.append((leader, world.traffic.append(leader, place, Acks.ALL)))
        self._wait(2 * self._hop_us)
        world.note("fail", node)
        world.lifecycle.end(node, clean=False, back_us=self._lag_us)
        world.lifecycle.fence(node, broker.broker_epoch)
        self._within(LEAD_HOPS, lambda: self._waiting(waits), "acknowledgements without a member")
        for place, state in held:
            now = world.controller.image.partition(*place)
            assert now is not None, f"{place}: gone"
            if len(state.replicas) > 1:
                self._check_isr(place, tuple(n for n in state.isr if n != node), "after a failure")
                if now.leader in (node, NO_NODE):
                    raise Violation("Prompt", f"{place[1]}: no leader after a failure, {now}")
                led = self._leader(place).replicas[place].check_leader(None)
                if len(now.isr) >= self._min_isr(now):
                    led.check_committed()
        self._wait(self._lag_us)
        if not broker.is_alive:
            raise Violation("Prompt", f"node {node} did not start")
        self._within(JOIN_HOPS, self._short, f"node {node} in the ISR again")
        world.lifecycle.attempt(ElectLeaders())
        self._within(LEAD_HOPS, self._unpreferred, "preferred leaders")
        self._wait(COMMIT_HOPS * self._hop_us)
        self._must_be_prompt(f"node {node} returned")

    # --- conditions ------------------------------------------------------------------------------

    def _wait(self, span_us: int) -> None:
        self.world.run(until_us=self.world.now_us + span_us)

    def _within(self, hops: int, missing: Callable[[], str], what: str) -> None:
        """Check that nothing is missing after so many hops."""
        self._wait(hops * self._hop_us)
        left = missing()
        if left:
            raise Violation("Prompt", f"{what} within {hops} hops of {self._hop_us} us: {left}")

    def _waiting(self, waits: list[tuple[ModelBroker, Wait]]) -> str:
        """Return the first wait that is pending; "": none."""
        for leader, wait in waits:
            if self.world.waits.is_pending(leader, wait):
                state = self.world.controller.image.partition(*wait.place)
                return f"acks={wait.acks.value} of {wait.offset} at node {leader.node_id}, {state}"
        return ""

    def _behind(self, places: list[Place]) -> str:
        for place in places:
            leader = self._leader(place)
            state = leader.image.partition(*place)
            assert state is not None, f"{place}: gone"
            end = leader.disk.log(place).end
            for node in state.replicas:
                mark = self.world.brokers[node].replicas[place].high_watermark
                if mark != end:
                    return f"{place[1]}: {mark} of {end} at node {node}"
        return ""

    def _short(self) -> str:
        for place, state in self.world.partitions():
            if len(state.isr) < len(state.replicas):
                return f"{place[1]}: {state}"
        return ""

    def _unpreferred(self) -> str:
        for place, state in self.world.partitions():
            node = state.replicas[0]
            if state.leader != node or not self.world.brokers[node].replicas[place].is_leader:
                return f"{place[1]}: {state}"
        return ""

    def _check_isr(self, place: Place, isr: tuple[NodeId, ...], when: str) -> None:
        state = self.world.controller.image.partition(*place)
        if state is None or set(state.isr) != set(isr):
            raise Violation("IsrMembers", f"{place[1]}, {when}: {isr} expected, {state}")

    def _leader(self, place: Place) -> ModelBroker:
        state = self.world.controller.image.partition(*place)
        assert state is not None, f"{place}: gone"
        assert state.leader != NO_NODE, f"{place}: no leader"
        return self.world.brokers[state.leader]

    def _min_isr(self, state: PartitionImage) -> int:
        return min(self.world.options.min_isr, len(state.replicas))
