"""Level `node`: whole clusters with faults, from their first start to the final checks.

*Safety*: nodes and clients run as they ship, with the drawn faults; the invariants are checked at
every step. *Liveness*: a majority of the controllers and brokers is left alone, cut off from all
others, and must serve every partition it can within a bound; then all nodes are repaired, and every
replica must be in sync again. At the end the clients' history has no anomaly, all replicas hold the
same records, and every data directory is sound.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final, Protocol, TypeAlias

from quorumlog.clients.config import ProducerConfig
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import NotReached, SimWorld
from quorumlog.testing.checkers import AnomalyKind, History, Place, Stored, check, describe

from ...checkers.cluster_invariants import ClusterInvariants
from ...checkers.internal_errors import raise_internal_errors
from ...checkers.transaction_shards import check_transaction_shards
from ...checkers.violation import Violation
from ...cluster.liveness import (
    CONVERGE_MS,
    SERVE_MS,
    SETTLE_MS,
    choose_core,
    is_settled,
    is_whole,
    leave_alone,
    servable,
)
from ...cluster.nodes import Cluster
from ...cluster.options import (
    ClusterOptions,
    Workload,
    draw_options,
    draw_workload,
    with_bounds,
)
from ...faults.cluster_faults import ClusterFaultInjector, ClusterFaultPlan, draw_fault_plan
from ...shrink.script import duration_ms_of, options_of
from ..transactions.plan import draws_transactions
from ..transactions.writers import (
    MACHINES,
    TransactionalWriters,
    with_transactions,
)
from .application import Application, Notes
from .transactional_client import ClientIncarnation

STEP_MS: Final = 50
SAFETY_MS: Final = 40_000
VIRTUAL_MS_MIN: Final = 60_000
START_MS: Final = 60_000  # bound of the first acknowledged record, with faults
END_MS: Final = 180_000  # bound for the clients to stop and read everything
CLIENTS: Final = ["client1", "client2"]  # machine names
NO_WRITERS: Final[list[str]] = []
IS_IDEMPOTENT: Final = any(one.name == "enable_idempotence" for one in fields(ProducerConfig))
ALLOWED: Final = frozenset(() if IS_IDEMPOTENT else (AnomalyKind.DUPLICATE,))


class Client(Protocol):
    """An application on its own machine."""

    @property
    def has_ended(self) -> bool: ...
    async def run(self) -> None: ...
    async def read_all(self) -> dict[Place, list[tuple[int, bytes]]]: ...
    async def prove_writable(self, places: list[Place]) -> None: ...


Maker: TypeAlias = Callable[["Run", str, Runtime], Client]


@dataclass(slots=True)
class Run:
    """The state of one run."""

    world: SimWorld
    options: ClusterOptions
    workload: Workload
    cluster: Cluster
    notes: Notes
    fault_injector: ClusterFaultInjector
    watch: ClusterInvariants
    applications: dict[str, "Client"] = field(default_factory=dict)
    # of applications other than `Application`
    makers: Mapping[str, "Maker"] = field(default_factory=dict)
    prover: str = CLIENTS[0]  # the client that proves partitions writable
    look: Callable[[], None] = lambda: None  # called at every step
    writers: TransactionalWriters | None = None  # None: a run without transactions

    @classmethod
    def of(
        cls,
        world: SimWorld,
        entropy: SimEntropy,
        *,
        options: ClusterOptions | None = None,
        fault_plan: ClusterFaultPlan | None = None,
        writers: list[str] = NO_WRITERS,
        injector: type[ClusterFaultInjector] = ClusterFaultInjector,
    ) -> "Run":
        """Create a run's cluster and clients; `writers` are the machines of other clients."""
        options = options_of(world, "cluster", options or draw_options(entropy.stream("options")))
        fault_plan = draw_fault_plan(entropy.stream("storm")) if fault_plan is None else fault_plan
        cluster = Cluster(world, options, entropy.stream("cluster"))
        return cls(
            world=world,
            options=options,
            workload=options_of(world, "workload", draw_workload(entropy.stream("habits"))),
            cluster=cluster,
            notes=Notes(now_ns=lambda: world.loop.now_ns),
            fault_injector=injector(
                cluster, fault_plan, entropy.stream("nemesis"), CLIENTS + writers
            ),
            watch=ClusterInvariants(cluster),
        )

    def start(self) -> None:
        """Start nodes and clients, and wait for a first acknowledged record."""
        self.cluster.start()
        for name in CLIENTS:
            self.world.node(name).spawn(partial(self._run_client, name))
        self.wait(lambda: bool(self.notes.acknowledged), START_MS, "a first record")

    def wait(self, condition: Callable[[], bool], virtual_ms: int, why: str) -> None:
        """Let time pass until the condition holds; raises NotReached."""
        end_ms = self.world.now_ms() + virtual_ms
        while not condition():
            if self.world.now_ms() >= end_ms:
                raise NotReached(f"not within {virtual_ms} ms: {why}\n{self.describe()}")
            self.step()

    def step(self) -> None:
        """Let one step of time pass, with an operator who maintains the voters."""
        self.cluster.run(STEP_MS)
        self.look()
        if self.writers is not None:
            self.writers.look()
        self.fault_injector.maintain_voters()
        for name in CLIENTS:
            client = self.world.node(name)
            if not client.alive:
                if isinstance(client.exit_error, Violation):
                    raise client.exit_error
                raise Violation("ClientEnded", f"{name}: {client.exit_error!r}") from (
                    client.exit_error
                )

    def describe(self) -> str:
        """Return the state of the nodes and the clients' errors."""
        errors = ", ".join(f"{count} {name}" for name, count in self.notes.errors.most_common())
        return f"{self.cluster.describe()}\n  errors of clients: {errors}"

    def judge_records(
        self, history: History, stored: Stored, *, allowed: frozenset[AnomalyKind] = ALLOWED
    ) -> None:
        """Compare a history with the stored records; raises Violation."""
        strict = {
            place: found
            for place, found in stored.items()
            if self.options.topic(place[0]).is_strict
        }
        loose = {place: found for place, found in stored.items() if place not in strict}
        found = check(history.of_places(strict), strict, allowed=allowed)
        found += check(history.of_places(loose), loose, allowed=frozenset({AnomalyKind.DUPLICATE}))
        if found:
            raise Violation(str(found[0].kind), describe(found))

    async def _run_client(self, name: str, runtime: Runtime) -> None:
        make = self.makers.get(name)
        if make is not None:
            application = make(self, name, runtime)
        else:
            application = Application(
                runtime=runtime,
                name=name,
                bootstrap=self.cluster.bootstrap,
                options=self.options,
                workload=self.workload,
                notes=self.notes,
                creates=name == CLIENTS[0],
            )
        self.applications[name] = application
        await application.run()


def play(
    world: SimWorld,
    *,
    options: ClusterOptions | None = None,
    fault_plan: ClusterFaultPlan | None = None,
) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    is_transactional = options is None and draws_transactions(entropy)
    if options is None:
        options = with_bounds(draw_options(entropy.stream("options")), entropy)
    if is_transactional:
        options = with_transactions(options, entropy)
        run = Run.of(world, entropy, options=options, fault_plan=fault_plan, writers=MACHINES)
        make = partial(ClientIncarnation, run.workload)
        run.writers = TransactionalWriters.of(run, entropy, run.cluster.bootstrap, make)
    else:
        run = Run.of(world, entropy, options=options, fault_plan=fault_plan)
    return play_run(run, entropy)


def play_run(run: Run, entropy: SimEntropy) -> dict[str, int]:
    """Run a prepared run."""
    with raise_internal_errors(), check_transaction_shards(run.cluster.violations):
        return _play_run(run, entropy)


def _play_run(run: Run, entropy: SimEntropy) -> dict[str, int]:
    world, writers = run.world, run.writers
    run.start()
    if writers is not None:
        writers.start()
    end_ms = safety_end_ms(world)
    while world.now_ms() < end_ms:
        run.step()
        run.fault_injector.step()
    served = serve_with_core(run, entropy)
    run.fault_injector.end_all(run.cluster.nodes)
    if writers is not None:
        writers.calm()
    run.wait(lambda: is_whole(run.cluster), CONVERGE_MS, "every replica is in sync")
    whole_ms = duration_ms_of(world, "run", VIRTUAL_MS_MIN)
    while world.now_ms() < whole_ms:
        run.step()
    if writers is not None:
        writers.end()
    stored = settle(run)
    if writers is not None:
        writers.judge(stored)
        run.cluster.check_directories()
        return facts_of(run) | {"served": served} | writers.facts()
    judge(run, stored)
    return facts_of(run) | {"served": served}


def safety_end_ms(world: SimWorld) -> int:
    """Return the end of the safety phase that begins now."""
    now_ms = world.now_ms()
    usual_ms = max(SAFETY_MS - now_ms, SAFETY_MS // 2)
    return now_ms + duration_ms_of(world, "safety phase", usual_ms)


def serve_with_core(run: Run, entropy: SimEntropy) -> int:
    """Leave a majority alone; return the number of partitions that it had to serve."""
    core = choose_core(run.cluster, entropy.stream("core"))
    run.world.faults.end_all()
    run.fault_injector.end_all(core)
    leave_alone(run.cluster, core, CLIENTS)
    run.wait(lambda: is_settled(run.cluster, core), SETTLE_MS, "a majority is settled")
    places = servable(run.cluster, core)
    name = run.prover
    proof = run.world.node(name).attach(
        lambda runtime: run.applications[name].prove_writable(places), name="proof"
    )
    names = [node.name for node in core]
    run.wait(proof.done, SERVE_MS, f"{names} serve {places}")
    proof.result()
    return len(places)


def settle(run: Run) -> Stored:
    """Stop the clients and read everything with a new client."""
    run.notes.is_over = True
    applications = run.applications
    run.wait(lambda: all(one.has_ended for one in applications.values()), END_MS, "the clients end")
    return read_by(run, CLIENTS[-1])


def read_by(run: Run, name: str) -> Stored:
    """Read everything from the start with a client."""
    reading = run.world.node(name).attach(
        lambda runtime: run.applications[name].read_all(), name="final read"
    )
    run.wait(reading.done, END_MS, "everything is read")
    stored: Stored = reading.result()
    return stored


def judge(run: Run, stored: Stored) -> None:
    """Compare the clients' history with the stored records, and check the data directories."""
    run.judge_records(run.notes.history, stored)
    run.cluster.check_directories()


def facts_of(run: Run) -> dict[str, int]:
    """Return the counts for a seed's line."""
    history = run.notes.history
    return {
        "nodes": len(run.cluster.nodes),
        "partitions": len(run.options.places),
        "sent": len(history.sends),
        "acked": run.notes.acknowledged.total(),
        "polls": len(history.polls),
        "restarts": run.cluster.restarts,
        "wiped": run.cluster.wiped,
        "faults": run.fault_injector.happened.total(),
        "checks": run.watch.checks,
        "breaks": run.world.fabric.links_broken,
        "errors": run.notes.errors.total(),
    }
