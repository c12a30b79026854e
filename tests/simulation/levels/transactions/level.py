"""Level `transactions`: clusters with faults, and applications that write in transactions.

Plain and transactional producers write into the input; two applications in a row process it,
exactly once each. Incarnations of applications end, sleep and return as zombies; requests arrive
late or twice; operators end transactions; coordinators and leaders fail. After the faults every
transaction must be decided within two minutes, everything must be processed, and the history, the
logs and the committed offsets must agree.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tests.kit.node_settings import with_settings

from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import NotReached, SimWorld
from quorumlog.testing.checkers import (
    Place,
    TransactionHistory,
    describe,
)

from ...checkers.internal_errors import raise_internal_errors
from ...checkers.transaction_logs import TransactionLogs
from ...checkers.transaction_relations import judged
from ...checkers.transaction_shards import check_transaction_shards
from ...checkers.violation import Violation
from ...cluster.liveness import CONVERGE_MS, is_whole
from ...cluster.nodes import Cluster, nodes_up
from ...cluster.options import ClusterOptions
from ...faults.cluster_faults import ClusterFaultPlan, draw_fault_plan
from ...shrink.script import options_of
from ..groups.level import NEEDS_MANY
from ..node.level import CLIENTS, END_MS, Run, facts_of, safety_end_ms, serve_with_core
from .application import ApplicationProcess, ApplicationState, ApplicationSupervisor, Incarnation
from .calls import Generation
from .calm import Calm
from .clients import Findings, PlainMachine, ReadingMachine
from .decisions import ask, coordinator_epoch, wait_for_decisions
from .faults import TransactionFaultInjector
from .offset_order import OffsetOrder
from .plan import (
    COMPACTED,
    DELETED,
    EXTRA_CONFIGS,
    INPUT,
    LAST,
    OFFSETS_TOPIC,
    OUTPUT,
    SHORT,
    Kind,
    TransactionsPlan,
    draw_cluster,
    draw_plan,
    draw_writers,
    places_of,
)
from .producer import Observations
from .python_processor import PythonProcessor, check_processed
from .python_writer import PythonWriter
from .staged_writers import STAGED, StagedWorkload, draw_staged, with_staged_topic

PROCESSED_MS: Final = 120_000  # bound for all input to be processed after the faults
MAKERS: Final[dict[tuple[Kind, bool], Callable[..., ApplicationProcess]]] = {
    (Kind.PROCESS, False): Incarnation,
    (Kind.WRITE, False): Incarnation,
    (Kind.PROCESS, True): PythonProcessor,
    (Kind.WRITE, True): PythonWriter,
}
"""By kind and client: the class of an application's processes."""


@dataclass(slots=True, eq=False)
class TransactionsRun:
    """The state of one run."""

    run: Run
    plan: TransactionsPlan
    observed: Observations
    states: list[ApplicationState]
    supervisors: list[ApplicationSupervisor]
    order: OffsetOrder
    staged: StagedWorkload
    outside: list["asyncio.Task[None]"] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        world: SimWorld,
        entropy: SimEntropy,
        *,
        plan: TransactionsPlan | None = None,
        fault_plan: ClusterFaultPlan | None = None,
    ) -> "TransactionsRun":
        """Create a run's cluster and its applications."""
        plan = options_of(world, "transactions", plan or draw_plan(entropy.stream("transactions")))
        options = draw_cluster(entropy.stream("cluster plan"), plan)
        staged = entropy.stream("staged")
        queries = draw_staged(staged, [one.machines for one in plan.applications])
        options = with_staged_topic(options, staged) if queries else options
        fault_plan = fault_plan or draw_fault_plan(entropy.stream("storm"))
        if options.brokers == 1:
            faults = tuple(fault for fault in fault_plan.faults if fault not in NEEDS_MANY)
            fault_plan = replace(fault_plan, faults=faults)
        run = Run.of(world, entropy, options=options, fault_plan=fault_plan)
        run.workload = options_of(world, "writers", draw_writers(entropy.stream("writers")))
        for node in run.cluster.nodes:
            node.config = with_settings(node.config, **plan.settings)
        run.fault_injector = TransactionFaultInjector(
            run.cluster,
            fault_plan,
            entropy.stream("nemesis"),
            CLIENTS + plan.machines,
            coordinators_ms=plan.behaviour.coordinators_ms,
            session_ms=3_000,
            late_calls=plan.behaviour.late_calls,
        )
        observed = Observations(
            now_ns=lambda: world.loop.now_ns,
            history=TransactionHistory(records=run.notes.history),
            next_value=run.notes.next_value,
            acknowledged=run.notes.acknowledged.total,
        )
        bootstrap = run.cluster.kafka_bootstrap.split(",")
        states = states_of(plan, options, run.cluster, observed)
        made = cls(
            run,
            plan,
            observed,
            states,
            [
                ApplicationSupervisor(world, state, MAKERS[state.plan.kind, state.plan.is_python])
                for state in states
            ],
            OffsetOrder(observed, bootstrap, (INPUT, 0)),
            StagedWorkload.of(
                world,
                queries,
                behaviour=plan.behaviour,
                cluster=run.cluster,
                observed=observed,
            ),
        )
        run.makers = {CLIENTS[0]: made.plain_machine, CLIENTS[1]: made.reading_machine}
        run.look = made.look
        return made

    # --- machines ------------------------------------------------------------------------------

    def plain_machine(self, run: Run, name: str, runtime: Runtime) -> PlainMachine:
        """Create the machine that creates topics and writes plain records."""
        return PlainMachine(
            runtime, name, run.cluster.bootstrap, run.options, run.workload, run.notes
        )

    def reading_machine(self, run: Run, name: str, runtime: Runtime) -> ReadingMachine:
        """Create the machine that reads."""
        bootstrap = run.cluster.kafka_bootstrap.split(",")
        return ReadingMachine(runtime, name, bootstrap, self.kept_places, self.observed, run.notes)

    @property
    def reader(self) -> ReadingMachine:
        """The machine that reads."""
        found = self.run.applications[CLIENTS[1]]
        assert isinstance(found, ReadingMachine)
        return found

    @property
    def kept_places(self) -> list[Place]:
        """The partitions that keep all records."""
        return places_of(self.run.options, (INPUT, OUTPUT, LAST, STAGED))

    def look(self) -> None:
        """Start and end incarnations; raise the errors of programs; check queues of markers."""
        for supervisor in self.supervisors:
            supervisor.look()
        self.staged.look()
        for _, node in nodes_up(self.run.cluster.nodes):
            if node.parts.transactions is not None:
                node.parts.transactions._markers.check_invariants()
        for task in list(self.outside):
            if task.done():
                self.outside.remove(task)
                task.result()

    # --- the scenario --------------------------------------------------------------------------

    def play(self, entropy: SimEntropy) -> dict[str, int]:
        """Run the scenario; raises AssertionError with a violation."""
        run, world = self.run, self.run.world
        for name in self.plan.machines:
            world.node(name).spawn(_idle)
        run.start()
        self._start_programs()
        end_ms = safety_end_ms(world)
        while world.now_ms() < end_ms:
            run.step()
            run.fault_injector.step()
        served = serve_with_core(run, entropy)
        run.fault_injector.end_all(run.cluster.nodes)
        self._calm()
        run.wait(lambda: is_whole(run.cluster), CONVERGE_MS, "every replica is in sync")
        self._end_writers()
        self._wait_for_decisions()
        self._end_processors()
        self._wait_for_decisions()
        self._must_be_prompt()
        self._judge()
        run.cluster.check_directories()
        return self._facts() | {"served": served}

    def _start_programs(self) -> None:
        run, behaviour = self.run, self.plan.behaviour
        first, second = (run.world.node(name) for name in CLIENTS)
        self.outside.append(second.attach(self.order.run, name="order"))
        if behaviour.operator_ms is not None:
            pause_ms = behaviour.operator_ms
            self.outside.append(
                second.attach(
                    lambda runtime: self.reader.fence_repeatedly(runtime, self.states, pause_ms),
                    name="operator",
                )
            )
        plain = run.applications[CLIENTS[0]]
        assert isinstance(plain, PlainMachine)
        if behaviour.aborts_ms is not None:
            aborts_ms = behaviour.aborts_ms
            self.outside.append(
                first.attach(
                    lambda runtime: plain.abort_repeatedly(
                        runtime, self.observed, self.states, aborts_ms
                    ),
                    name="aborts",
                )
            )
        if any(topic.name == DELETED for topic in run.options.topics):
            self.outside.append(first.attach(plain.delete_repeatedly, name="deletions"))

    def _calm(self) -> None:
        self.order.is_over = True
        self.staged.calm()
        for state in self.states:
            state.is_calm = True

    def _end_writers(self) -> None:
        """Stop plain and transactional writers."""
        run = self.run
        run.notes.is_over = True
        self.staged.stop()
        writers = [one for one in self.supervisors if one.state.plan.kind is Kind.WRITE]
        for writer in writers:
            writer.state.is_over = True
        run.wait(
            lambda: (
                all(one.has_ended for one in run.applications.values())
                and all(writer.has_ended for writer in writers)
                and self.staged.has_ended
                and not self.outside
            ),
            END_MS,
            "the writers end",
        )

    def _end_processors(self) -> None:
        """Wait until everything is processed, and stop the applications."""
        processors = [one for one in self.supervisors if one.state.plan.kind is Kind.PROCESS]
        # With batch_max=1 and a pause of 1.1 s on average between transactions, an application
        # processes at most 109 records in PROCESSED_MS. The backlog can have several hundred.
        for processor in processors:
            processor.state.is_draining = True
        self.run.wait(
            lambda: all(one.state.is_caught_up for one in processors),
            PROCESSED_MS,
            "all input is processed",
        )
        for processor in processors:
            processor.state.is_over = True
        self.run.wait(
            lambda: all(one.has_ended for one in processors), END_MS, "the applications end"
        )

    def _wait_for_decisions(self) -> None:
        topics = (OFFSETS_TOPIC, SHORT, COMPACTED)
        places = [*self.kept_places, *places_of(self.run.options, topics)]
        wait_for_decisions(self.run, self.reader, places)

    def _must_be_prompt(self) -> None:
        """Check what takes a few messages without faults; see `Calm`."""
        Calm(
            self.run,
            CLIENTS[1],
            places_of(self.run.options, (LAST,)),
            self.kept_places,
            self.observed,
            self.staged.history,
            self.plan.settings["transactional_id_expiration_ms"],
            self.plan.is_calm_long,
        ).play()

    def _judge(self) -> None:
        """Compare the history with the logs, the committed data and the committed offsets."""
        options = self.run.options
        extra = places_of(options, (SHORT, COMPACTED))
        groups = {
            state.plan.group: state.sources
            for state in self.states
            if state.plan.kind is Kind.PROCESS and not state.plan.is_python
        }
        found = ask(
            self.run,
            CLIENTS[1],
            lambda runtime: self.reader.find_all(runtime, [*self.kept_places, *extra], groups),
        )
        epoch_each = {
            producer_id
            for producer_id, generation in self.observed.generations.items()
            if generation is Generation.NEW
        } | self._python_ids(found)
        logs = TransactionLogs(
            self.observed.history, epoch_each, frozenset(places_of(options, (COMPACTED,)))
        )
        self.observed.counts["markers"] = logs.check(found.logs)
        batches = self.staged.history.check(found.committed)
        anomalies = judged(
            self.observed.history,
            found.committed,
            found.offsets,
            incomplete=places_of(options, tuple(EXTRA_CONFIGS)),
            processed=groups,
        )
        if anomalies:
            raise Violation(str(anomalies[0].kind), describe(anomalies))
        if self.staged.supervisors:
            self.observed.counts["staged batches"] = batches
        for state in self.states:
            if state.plan.kind is Kind.PROCESS and state.plan.is_python:
                check_processed(
                    self.observed.history, found.committed, state.plan.name, state.sources
                )
        ask(self.run, CLIENTS[1], self.order.look_at_all)

    def _python_ids(self, found: Findings) -> set[int]:
        """Return the producer ids of Python clients."""
        writers = tuple(f"{one.plan.name}/" for one in self.states if one.plan.is_python)
        history = self.observed.history
        return {
            batch.producer_id
            for batches in found.logs.values()
            for batch in batches
            for _, _, value in batch.records
            if (transaction := history.transaction_of(value)) is not None
            and transaction.producer.startswith(writers)
        }

    def _facts(self) -> dict[str, int]:
        counts = self.observed.counts
        return facts_of(self.run) | {
            "incarnations": sum(state.incarnations for state in self.states),
            "failed": self.observed.errors.total(),
            **{name.replace(" ", "_"): counts[name] for name in sorted(counts)},
        }


def states_of(
    plan: TransactionsPlan, options: ClusterOptions, cluster: Cluster, observed: Observations
) -> list[ApplicationState]:
    """Return the state of each application."""
    return [
        ApplicationState(
            one,
            plan.behaviour,
            cluster.kafka_bootstrap.split(","),
            places_of(options, (one.source,)),
            places_of(options, one.targets),
            observed,
            partial(coordinator_epoch, cluster),
            cluster.bootstrap,
        )
        for one in plan.applications
    ]


def play(
    world: SimWorld,
    *,
    plan: TransactionsPlan | None = None,
    fault_plan: ClusterFaultPlan | None = None,
) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    with raise_internal_errors():
        run = TransactionsRun.of(world, entropy, plan=plan, fault_plan=fault_plan)
        try:
            with check_transaction_shards(run.run.cluster.violations):
                return run.play(entropy)
        except NotReached as error:
            errors = run.observed.errors.most_common(12)
            raise NotReached(f"{error}\n  errors of applications: {errors}") from None


async def _idle(runtime: Runtime) -> None:
    await asyncio.Event().wait()
