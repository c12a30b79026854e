"""Transactional writers beside the other clients of a run, and the checks of what they wrote.

Levels `node` and `kafka` have them in a third of their seeds. They write to the topics that keep
acknowledged records. Each isolation level has a history of reads: of committed records, and of all
stored ones.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.kit.node_settings import with_settings

from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.testing.checkers import (
    AnomalyKind,
    History,
    Stored,
    TransactionHistory,
    check_transactions,
    describe,
)

from ...checkers.transaction_logs import LogBatch, TransactionLogs, ids_with_an_epoch_each
from ...checkers.violation import Violation
from ...cluster.options import ClusterOptions
from .application import ApplicationProcess, ApplicationState, ApplicationSupervisor, Incarnation
from .clients import ReadingMachine
from .decisions import ask, coordinator_epoch, wait_for_decisions
from .plan import (
    TRANSACTIONS_TOPIC,
    ApplicationPlan,
    Kind,
    draw_behaviour,
    draw_generation,
    draw_timeout,
    inner_topics,
)
from .producer import Observations

if TYPE_CHECKING:
    from ..node.level import Run

WRITERS: Final = 2
MACHINES: Final = [f"w{number}{side}" for number in range(WRITERS) for side in "ab"]
PLAIN_MAX: Final = 500  # records of all plain producers beside them
THINK_MS: Final = ((200, 1_000), (500, 3_000))  # between two transactions
END_MS: Final = 60_000  # bound for the writers to stop after the faults
GAP: Final = frozenset({AnomalyKind.GAP})  # markers have offsets
READER: Final = "client2"  # machine of the last reads

Make = Callable[[ApplicationState, Runtime, int], ApplicationProcess]


def with_transactions(options: ClusterOptions, entropy: SimEntropy) -> ClusterOptions:
    """Return the options of the same cluster with the coordinators' topics and Kafka listeners."""
    settings = {
        "offsets_topic_num_partitions": 1,
        "transaction_state_log_num_partitions": 1 + entropy.stream("coordinators").below(3),
    }
    inner = inner_topics(min(3, options.brokers), settings)
    return replace(options, topics=(*options.topics, *inner), has_kafka=True)


@dataclass(slots=True, eq=False)
class TransactionalWriters:
    """The writers of a run."""

    run: "Run"
    observed: Observations
    supervisors: list[ApplicationSupervisor]
    is_started: bool = False

    @classmethod
    def of(
        cls, run: "Run", entropy: SimEntropy, bootstrap: str, make: Make = Incarnation
    ) -> "TransactionalWriters":
        """Create the writers of a run; `make` creates their processes, by default those that use
        the Kafka protocol."""
        drawn, notes = entropy.stream("writers"), run.notes
        notes.uncommitted = History(sends=notes.history.sends)
        observed = Observations(
            now_ns=notes.now_ns,
            history=TransactionHistory(records=notes.history),
            next_value=notes.next_value,
        )
        behaviour = replace(draw_behaviour(drawn), think_ms=THINK_MS[drawn.below(len(THINK_MS))])
        run.workload = replace(run.workload, producers=1, records_max=PLAIN_MAX)
        states = [
            ApplicationState(
                plan,
                behaviour,
                bootstrap.split(","),
                [],
                [place for place in run.options.places if place[0] in plan.targets],
                observed,
                partial(coordinator_epoch, run.cluster),
            )
            for plan in _draw_writers(drawn, run.options)
        ]
        coordinators = run.options.topic(TRANSACTIONS_TOPIC).partitions
        for node in run.cluster.nodes:
            node.config = with_settings(
                node.config,
                offsets_topic_num_partitions=1,
                transaction_state_log_num_partitions=coordinators,
            )
        return cls(
            run, observed, [ApplicationSupervisor(run.world, state, make) for state in states]
        )

    def start(self) -> None:
        """Start the machines; `look` starts the writers."""
        for name in MACHINES:
            self.run.world.node(name).spawn(_idle)
        self.is_started = True

    def look(self) -> None:
        """Once started: start and end incarnations; raise the errors of programs."""
        for supervisor in self.supervisors if self.is_started else ():
            supervisor.look()

    def calm(self) -> None:
        """End the faults of the writers."""
        for supervisor in self.supervisors:
            supervisor.state.is_calm = True

    def end(self) -> None:
        """Stop the writers, and wait until every transaction is decided."""
        for supervisor in self.supervisors:
            supervisor.state.is_over = True
        self.run.wait(
            lambda: all(supervisor.has_ended for supervisor in self.supervisors),
            END_MS,
            "the transactional writers end",
        )
        wait_for_decisions(self.run, self._reader(), self.run.options.places)

    def judge(self, stored: Stored) -> None:
        """Compare the history with the committed records, as `stored` and as the Kafka protocol
        returns them, and with the logs; raises Violation."""
        run, reader = self.run, self._reader()
        places = run.options.places
        found = ask(run, reader.name, lambda runtime: reader.find_all(runtime, places, {}))
        if found.committed != stored:
            raise Violation(
                "ReadsDiffer", "gRPC and Kafka clients read different committed records"
            )
        strict = [place for place in places if run.options.topic(place[0]).is_strict]
        epoch_each = ids_with_an_epoch_each(found.logs, self.observed.shares_epochs)
        logs = TransactionLogs(self.observed.history, epoch_each)
        self.observed.counts["markers"] = logs.check({place: found.logs[place] for place in strict})
        anomalies = check_transactions(
            self.observed.history, {place: found.committed[place] for place in strict}, {}
        )
        if anomalies:
            raise Violation(str(anomalies[0].kind), describe(anomalies))
        assert run.notes.uncommitted is not None, "a run with transactions has two histories"
        records = {place: _records_of(batches) for place, batches in found.logs.items()}
        run.judge_records(run.notes.uncommitted, records, allowed=GAP)
        loose = {place: one for place, one in found.committed.items() if place not in strict}
        run.judge_records(run.notes.history, loose)

    def facts(self) -> dict[str, int]:
        """Return the counts for a seed's line."""
        counts = self.observed.counts
        return {
            "incarnations": sum(one.state.incarnations for one in self.supervisors),
            "failed": self.observed.errors.total(),
            **{name.replace(" ", "_"): counts[name] for name in sorted(counts)},
        }

    # --- inside --------------------------------------------------------------------------------

    def _reader(self) -> ReadingMachine:
        run, name = self.run, READER
        bootstrap = run.cluster.kafka_bootstrap.split(",")
        runtime = run.world.node(name).runtime()
        return ReadingMachine(runtime, name, bootstrap, [], self.observed, run.notes)


def _draw_writers(entropy: SimEntropy, options: ClusterOptions) -> list[ApplicationPlan]:
    topics = [topic.name for topic in options.topics if topic.is_strict and not topic.is_inner]
    plans = []
    for number in range(WRITERS):
        drawn = entropy.stream(f"{number}")
        plans.append(
            ApplicationPlan(
                name=f"w{number}",
                kind=Kind.WRITE,
                generation=draw_generation(drawn),
                transactional_id=f"writer-{number}",
                machines=(f"w{number}a", f"w{number}b"),
                targets=tuple(topic for topic in topics if drawn.chance(0.8)) or (topics[0],),
                timeout_ms=draw_timeout(drawn),
            )
        )
    return plans


def _records_of(batches: Iterable[LogBatch]) -> list[tuple[int, bytes]]:
    """Return the records of a log, also those of aborted transactions."""
    return [(offset, value) for batch in batches for offset, _, value in batch.records]


async def _idle(runtime: Runtime) -> None:
    await asyncio.Event().wait()
