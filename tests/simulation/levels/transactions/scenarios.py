"""Named scenarios of transactions: histories that random seeds seldom reach.

A scenario raises AssertionError, Violation or NotReached if a rule is broken; the hunt for planted
bugs plays some of them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from quorumlog.simulation.world import SimWorld

from ...checkers.violation import Violation
from ...faults.call_delays import BYTES
from .calls import Generation, Member
from .faults import MARK, VERIFY
from .plan import OFFSETS_TOPIC
from .producer import AbortableError, FatalError
from .scripted import NAME, OTHER, OUT, ScriptedProducer, ScriptedTransactions

LATE_MS: Final = 1_500  # of a delayed call: longer than the rest of its transaction takes
HOLD_MS: Final = 1_000_000  # a call never arrives
SHORT_MS: Final = 2_000  # of a transaction that expires
HURRY_S: Final = 0.3  # until an abort overtakes an answer
REFUSED: Final = (AbortableError, FatalError)  # of a producer that something else has fenced


@contextmanager
def stage_of(
    generation: Generation, *, copies: int = 3, coordinators: int = 1, coordinator_copies: int = 3
) -> Iterator[ScriptedTransactions]:
    """Yield a started stage; at the end, every transaction must be decided without an anomaly."""
    with SimWorld(1) as world:
        stage = ScriptedTransactions(
            world,
            generation,
            copies=copies,
            coordinators=coordinators,
            coordinator_copies=coordinator_copies,
        )
        stage.start()
        yield stage
        anomalies = stage.anomalies(stage.end())
        if anomalies:
            raise Violation(min(anomalies), f"anomalies: {sorted(anomalies)}")


def fail_over(stage: ScriptedTransactions, transactional_id: str = NAME) -> None:
    """Take the coordinator down until another one leads, and end the delays."""
    coordinator = stage.coordinator(transactional_id)
    stage.stage.take_down(coordinator)
    stage.delays_ms.clear()
    stage.stage.until(
        lambda: stage.coordinator(transactional_id) is not coordinator, "another coordinator"
    )
    stage.stage.bring_up(coordinator)
    stage.stage.until(lambda: coordinator.is_ready, "the former coordinator is up")


# --- requests that arrive again ------------------------------------------------------------------


def late_commit() -> None:
    """A commit arrives again in the next transaction (Jepsen's report on Bufstream, 2024)."""
    with stage_of(Generation.NEW) as stage:
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        identity = one.identity
        stage.do(one.producer.commit())
        stage.do(one.write({OUT: b"c"}))
        stage.do(one.end_late(identity, is_commit=True))
        with suppress(*REFUSED):
            stage.do(one.write({OTHER: b"d"}))
        with suppress(*REFUSED):
            stage.do(one.producer.abort())


def late_marker() -> None:
    """A marker arrives again, before and in the next transaction."""
    with stage_of(Generation.NEW) as stage:
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a"}))
        stage.do(one.producer.commit())
        stage.wait_complete()
        stage.do(one.producer.repeat_marker(0, coordinator_epoch=0))
        stage.do(one.write({OUT: b"b"}))
        stage.do(one.producer.repeat_marker(0, coordinator_epoch=0))
        with suppress(*REFUSED):
            stage.do(one.write({OUT: b"c"}))
        with suppress(*REFUSED):
            stage.do(one.producer.abort())


# --- verifications -------------------------------------------------------------------------------


def outdated_verification() -> None:
    """A verification is answered, and its transaction aborted before the answer arrives."""
    with stage_of(Generation.OLD, coordinators=3) as stage:
        one = stage.new_producer(stage.id_at(lambda node: node is not stage.stage.leader(OUT)))
        stage.delays_ms[VERIFY, True] = LATE_MS
        one.producer.begin()
        sending = one.producer.send(OUT, [(None, b"a")])
        stage.do(one.producer.abort_hurriedly(sending, HURRY_S))
        stage.stage.run(2 * LATE_MS)
        stage.do(one.write({OUT: b"b"}))
        stage.do(one.producer.commit())


def outdated_verification_of_offsets() -> None:
    """The same with the offsets of a group."""
    with stage_of(Generation.OLD, coordinators=3) as stage:
        offsets = (OFFSETS_TOPIC, 0)
        first = stage.new_producer()
        stage.do(first.write({OUT: b"a"}))
        stage.do(first.producer.send_offsets("group", {OUT: (0, 0)}))  # creates the topic
        stage.do(first.producer.commit())
        one = stage.new_producer(stage.id_at(lambda node: node is not stage.stage.leader(offsets)))
        name = one.transactional_id
        stage.do(one.calls.add_offsets(name, one.identity, "group"))
        stage.delays_ms[VERIFY, True] = LATE_MS
        late = stage.begin(one.calls.commit_offsets(name, one.identity, "group", {OUT: 0}))
        stage.stage.run(LATE_MS // 2)
        stage.do(one.end_late(one.identity, is_commit=False))
        stage.stage.until(late.done, "the offsets have an answer")
        if not late.result():
            raise Violation("Accepted", "offsets were committed after the end of a transaction")


def commit_of_a_former_member() -> None:
    """A former member of a group commits offsets in a transaction (KIP-447)."""
    with stage_of(Generation.NEW) as stage:
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a"}))
        stage.do(one.producer.send_offsets("group", {OUT: (0, 0)}))  # creates the group
        stage.do(one.producer.commit())
        stage.do(one.write({OUT: b"b"}))
        try:
            stage.do(one.producer.send_offsets("group", {OUT: (0, 0)}, Member("former", 1)))
        except AbortableError:
            stage.do(one.producer.abort())
        else:
            raise Violation("Accepted", "a former member committed offsets in a transaction")


# --- decisions and markers -----------------------------------------------------------------------


def expiry_and_failover() -> None:
    """A transaction expires, and its coordinator fails after some of the markers. The clocks of the
    others are behind, so that it has not expired for them."""
    with stage_of(Generation.NEW, coordinators=3) as stage:
        name = stage.id_at(lambda node: node is stage.stage.leader(OUT))
        one = stage.new_producer(name, timeout_ms=SHORT_MS)
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        stage.delays_ms[MARK, False] = HOLD_MS
        stage.stage.run(SHORT_MS + 500)
        for node in stage.stage.cluster.nodes:
            if node is not stage.coordinator(name):
                node.sim.machine.wall_ms -= 60_000
        fail_over(stage, name)
        with suppress(*REFUSED):
            stage.do(one.producer.commit())


def failover_before_the_markers() -> None:
    """The coordinator fails between a decision and its markers."""
    with stage_of(Generation.NEW) as stage:
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        stage.delays_ms[MARK, False] = HOLD_MS
        stage.do(one.producer.commit())
        fail_over(stage)


def failover_before_the_decision() -> None:
    """The coordinator fails before its followers have the decision; a successor aborts."""
    with stage_of(Generation.NEW, coordinators=3) as stage:
        name = stage.id_at(lambda node: node is stage.stage.leader(OUT))
        one = stage.new_producer(name)
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        stage.delayed, stage.delays_ms[BYTES, True] = stage.coordinator(name), HOLD_MS
        committing = stage.begin(one.producer.commit())
        stage.stage.run(500)
        committing.cancel()
        fail_over(stage, name)
        stage.new_producer(name)


def successor_during_the_markers() -> None:
    """Another producer initializes between a decision and its markers, then the coordinator
    fails."""
    with stage_of(Generation.NEW) as stage:
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        stage.delays_ms[MARK, False] = HOLD_MS
        stage.do(one.producer.commit())
        successor = ScriptedProducer(stage, "successor", NAME, 60_000)
        starting = stage.begin(successor.start())
        stage.stage.run(LATE_MS)
        fail_over(stage)
        stage.stage.until(starting.done, "the successor has its identity")
        starting.result()


def next_transaction_during_the_markers() -> None:
    """The next transaction begins between a decision and its last marker, and aborts."""
    with stage_of(Generation.OLD, coordinators=3) as stage:
        one = stage.new_producer(stage.id_at(lambda node: node is stage.stage.leader(OUT)))
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        stage.delays_ms[MARK, False] = LATE_MS
        stage.do(one.producer.commit())
        stage.do(one.write({OUT: b"c", OTHER: b"d"}))
        stage.do(one.producer.abort())


def marker_of_a_failed_leader() -> None:
    """A leader fails before its follower has the marker that it appended."""
    with stage_of(Generation.NEW, copies=2, coordinators=3, coordinator_copies=1) as stage:
        leader, (follower,) = stage.stage.leader(OUT), stage.stage.followers(OUT)
        one = stage.new_producer(stage.id_at(lambda node: node not in (leader, follower)))
        stage.do(one.write({OUT: b"a"}))
        stage.stage.cut(leader, follower)
        stage.do(one.producer.commit())
        stage.stage.run(500)
        stage.stage.take_down(leader)
        stage.stage.until(
            lambda: stage.stage.partition(OUT).leader == follower.node_id, "the follower leads"
        )
        stage.stage.bring_up(leader)


SCENARIOS: Final[Mapping[str, Callable[[], None]]] = {
    one.__name__: one
    for one in (
        late_commit,
        late_marker,
        outdated_verification,
        outdated_verification_of_offsets,
        commit_of_a_former_member,
        expiry_and_failover,
        failover_before_the_markers,
        failover_before_the_decision,
        successor_during_the_markers,
        next_transaction_during_the_markers,
        marker_of_a_failed_leader,
    )
}
