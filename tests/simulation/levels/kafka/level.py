"""Level `kafka`: the clusters, faults and checks of level `node`, with Kafka clients.

One client machine uses gRPC, the other one the Kafka protocol, with one history: a reader must see
every writer's records. At the end both read everything, and must have read the same. No broker may
reject a client's bytes as an invalid request, or end a connection because of an internal error,
whatever the faults.

One more producer pipelines its requests, so that brokers begin them as runs, and checks each
outcome. Some seeds have a topic with one replica, with retention or with compaction for it. At the
end the logs of all replicas have the same bytes, and every log's invariants hold.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from tests.kit.node_settings import with_settings

from quorumlog.frontends.kafka import ENDS_OF_BAD_INPUT, KafkaServer
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimWorld
from quorumlog.storage import Log
from quorumlog.testing.checkers import Stored

from ...checkers.cluster_invariants import WatchedPartition, open_log_of
from ...checkers.transaction_logs import batches_of
from ...checkers.violation import Violation
from ...cluster.liveness import is_whole
from ...cluster.nodes import nodes_up
from ...cluster.options import ClusterOptions, TopicPlan, draw_options
from ..node.level import CLIENTS, Run, play_run, read_by
from ..transactions.plan import COMPACTED, EXTRA_CONFIGS, SHORT, draws_transactions
from ..transactions.writers import (
    MACHINES,
    TransactionalWriters,
    with_transactions,
)
from .application import KafkaApplication
from .pipelines import PipelineLedger
from .run_faults import RunFaultInjector
from .run_marks import RunMarks

SINGLE: Final = TopicPlan(
    name="single", partitions=2, replication=1, min_isr=1, flush_policy="fsync"
)
RETENTION_MS: Final = 1_000  # between two checks
EQUAL_MS: Final = 30_000  # bound for the followers to have all records of their leaders


def play(world: SimWorld) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    options = replace(draw_options(entropy.stream("options")), has_kafka=True)
    options = _with_more_topics(options, entropy.stream("more topics"))
    writers = MACHINES if draws_transactions(entropy) else []
    if writers:
        options = with_transactions(options, entropy)
    run = Run.of(world, entropy, options=options, writers=writers, injector=RunFaultInjector)
    if writers:
        run.writers = TransactionalWriters.of(run, entropy, run.cluster.kafka_bootstrap)
    pipelines = Pipelines(run)
    facts = play_run(run, entropy)
    stored = [read_by(run, name) for name in CLIENTS]
    if stored[0] != stored[1]:
        raise Violation("ReadsDiffer", "gRPC and Kafka clients read different records")
    pipelines.judge(stored[0])
    return facts | pipelines.facts()


class Pipelines:
    """The pipelined producer of a run, its faults, and the checks of what it wrote."""

    def __init__(self, run: Run) -> None:
        """Add them to a run that has not started."""
        faults = run.fault_injector
        assert isinstance(faults, RunFaultInjector), f"{faults}"
        self._run = run
        self._faults = faults
        self._seen = Seen(run)
        self._ledger = PipelineLedger(
            run.watch.committed_end,
            run.watch.written_end,
            lambda: faults.has_device_faults,
            faults.before_burst,
        )
        for node in run.cluster.nodes:
            node.config = with_settings(node.config, retention_check_interval_ms=RETENTION_MS)
        run.makers = {CLIENTS[-1]: partial(_kafka_application, self._ledger)}
        run.prover = CLIENTS[-1]
        run.look = self._look

    def judge(self, stored: Stored) -> None:
        """Check the records of the clients' topics, and all logs once they are equal."""
        run, ledger = self._run, self._ledger
        ledger.judge(stored)
        run.wait(lambda: _have_equal_ends(run), EQUAL_MS, "followers have all records")
        _check_logs(run, ledger)

    def facts(self) -> dict[str, int]:
        """Return the counts for a seed's line."""
        counts = self._ledger.counts
        batches = {name.replace("-", "_"): counts[name] for name in sorted(counts)}
        asked = {"asked": self._seen.requests}
        return asked | batches | self._faults.facts() | self._seen.marks.facts()

    def _look(self) -> None:
        self._seen.look()
        self._faults.look()


def _with_more_topics(options: ClusterOptions, entropy: SimEntropy) -> ClusterOptions:
    """Return the options with topics for pipelined producers, each in a part of the seeds."""
    topics = list(options.topics)
    if entropy.chance(0.4):
        topics.append(SINGLE)
    name = (SHORT, COMPACTED)[entropy.below(2)]
    if entropy.chance(0.5):
        topics.append(
            TopicPlan(
                name=name,
                partitions=1,
                replication=3,
                min_isr=2,
                flush_policy="replicated",
                is_inner=True,
                is_compacted=name == COMPACTED,
                extra=tuple(EXTRA_CONFIGS[name].items()),
            )
        )
    return replace(options, topics=tuple(topics))


def _logs_of(run: Run) -> Iterator[tuple[WatchedPartition, TopicPlan, list[tuple[str, Log]]]]:
    """Yield the open logs of all replicas by node, for each partition of a planned topic."""
    image = run.cluster.newest_image
    for plan in run.options.topics:
        topic = image.topic(plan.name)
        for index, _ in topic.sorted_partitions() if topic is not None else ():
            assert topic is not None, f"{plan.name} has partitions"
            what, logs = WatchedPartition(plan.name, topic.id, index), []
            for machine, node in nodes_up(run.cluster.nodes):
                for replica in node.parts.replicas.hosted if node.parts.replicas else ():
                    log = open_log_of(replica)
                    partition = (replica.partition.topic, replica.topic_id, replica.partition.index)
                    if log is not None and partition == (what.topic, what.topic_id, what.index):
                        logs.append((machine.name, log))
            yield what, plan, logs


def _have_equal_ends(run: Run) -> bool:
    """Return True if every replica is in sync, open, and ends where the others end."""
    return is_whole(run.cluster) and all(
        len(logs) >= plan.replication and len({log.log_end_offset for _, log in logs}) == 1
        for _, plan, logs in _logs_of(run)
    )


def _check_logs(run: Run, ledger: PipelineLedger) -> None:
    """Raise Violation unless the logs of all replicas hold the same bytes, and the acknowledged
    records of topics that clients do not read are at their offsets."""
    for what, plan, logs in _logs_of(run):
        contents: dict[bytes, str] = {}
        start = max(log.log_start_offset for _, log in logs)
        for name, log in logs:
            log.check_invariants()
            files = run.watch.files_of(name, what)
            contents.setdefault(files.content(start, log.log_end_offset), name)
        if len(contents) > 1 and not plan.is_compacted:
            sizes = {name: len(content) for content, name in contents.items()}
            raise Violation("LogsDiffer", f"{what} from {start} on: {sizes} bytes")
        if plan.name in EXTRA_CONFIGS:
            batches = [batch for content in contents for batch in batches_of(content)]
            records = [(one[0], one[2]) for batch in batches for one in batch.records]
            ledger.judge({(what.topic, what.index): records})


def _kafka_application(
    ledger: PipelineLedger, run: Run, name: str, runtime: Runtime
) -> KafkaApplication:
    return KafkaApplication(
        runtime=runtime,
        name=name,
        bootstrap=run.cluster.kafka_bootstrap,
        options=run.options,
        workload=run.workload,
        notes=run.notes,
        ledger=ledger,
    )


class Seen:
    """The counters of the brokers' listeners."""

    def __init__(self, run: Run) -> None:
        self.marks = RunMarks()
        self._run = run
        self._answered: dict[KafkaServer, int] = {}

    @property
    def requests(self) -> int:
        """The number of answered requests, over all processes of brokers."""
        return sum(self._answered.values())

    def look(self) -> None:
        """Raise Violation if a listener rejected bytes as invalid, or began a wrong run."""
        for violation in self.marks.violations:
            raise violation
        for machine, node in nodes_up(self._run.cluster.nodes):
            if node.parts.kafka is None:
                continue
            if node.parts.kafka not in self._answered:
                self.marks.observe(node.parts.kafka)
            figures = node.parts.kafka.figures
            self._answered[node.parts.kafka] = sum(api.answered for api in figures.apis.values())
            for listener in figures.listeners.values():
                bad = {reason: listener.ended.get(reason, 0) for reason in ENDS_OF_BAD_INPUT}
                if any(bad.values()):
                    raise Violation("ConnectionEnded", f"{machine.name} ended connections: {bad}")
