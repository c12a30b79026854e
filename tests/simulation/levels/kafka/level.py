"""Level `kafka`: the clusters, faults and checks of level `node`, with Kafka clients.

One client machine uses gRPC, the other one the Kafka protocol, with one history: a reader must see
every writer's records. At the end both read everything, and must have read the same. No broker may
reject a client's bytes as an invalid request, or end a connection because of an internal error,
whatever the faults.
"""

from dataclasses import replace

from quorumlog.frontends.kafka import ENDS_OF_BAD_INPUT, KafkaServer
from quorumlog.runtime import Runtime
from quorumlog.simulation.world import SimWorld

from ...checkers.violation import Violation
from ...cluster.nodes import nodes_up
from ...cluster.options import draw_options
from ..node.level import CLIENTS, Run, play_run, read_by
from ..transactions.plan import draws_transactions
from ..transactions.writers import (
    MACHINES,
    TransactionalWriters,
    with_transactions,
)
from .application import KafkaApplication


def play(world: SimWorld) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    options = replace(draw_options(entropy.stream("options")), has_kafka=True)
    if draws_transactions(entropy):
        options = with_transactions(options, entropy)
        run = Run.of(world, entropy, options=options, writers=MACHINES)
        run.writers = TransactionalWriters.of(run, entropy, run.cluster.kafka_bootstrap)
    else:
        run = Run.of(world, entropy, options=options)
    run.makers = {CLIENTS[-1]: _kafka_application}
    run.prover = CLIENTS[-1]
    seen = Seen(run)
    run.look = seen.look
    facts = play_run(run, entropy)
    stored = [read_by(run, name) for name in CLIENTS]
    if stored[0] != stored[1]:
        raise Violation("ReadsDiffer", "gRPC and Kafka clients read different records")
    return facts | {"asked": seen.requests}


def _kafka_application(run: Run, name: str, runtime: Runtime) -> KafkaApplication:
    return KafkaApplication(
        runtime=runtime,
        name=name,
        bootstrap=run.cluster.kafka_bootstrap,
        options=run.options,
        workload=run.workload,
        notes=run.notes,
    )


class Seen:
    """The counters of the brokers' listeners."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._answered: dict[KafkaServer, int] = {}

    @property
    def requests(self) -> int:
        """The number of answered requests, over all processes of brokers."""
        return sum(self._answered.values())

    def look(self) -> None:
        """Raise Violation if a listener rejected bytes as invalid."""
        for machine, node in nodes_up(self._run.cluster.nodes):
            if node.parts.kafka is None:
                continue
            figures = node.parts.kafka.figures
            self._answered[node.parts.kafka] = sum(api.answered for api in figures.apis.values())
            for listener in figures.listeners.values():
                bad = {reason: listener.ended.get(reason, 0) for reason in ENDS_OF_BAD_INPUT}
                if any(bad.values()):
                    raise Violation("ConnectionEnded", f"{machine.name} ended connections: {bad}")
