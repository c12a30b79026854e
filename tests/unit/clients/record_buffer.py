"""A producer's record buffer without a sender, for tests."""

from collections.abc import Callable

from quorumlog.clients.config import ProducerConfig
from quorumlog.clients.producer.accumulator import Accumulator
from quorumlog.clients.producer.incomplete_batches import IncompleteBatches
from quorumlog.clients.producer.outcomes import Failures
from quorumlog.clients.producer.partitioner import KeyPartitioner, Partitioner
from quorumlog.clients.producer.ready_queues import ReadyQueues
from quorumlog.simulation.entropy import SimEntropy


class RecordBuffer:
    """The parts of the buffer, connected as in a producer."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        partitioner: Partitioner | None = None,
        on_work: Callable[[], object] = lambda: None,
        seed: str = "seed/0",
    ) -> None:
        self.failures = Failures()
        self.incomplete = IncompleteBatches(config, self.failures, on_work)
        self.queues = ReadyQueues(self.incomplete, on_work)
        self.accumulator = Accumulator(
            config,
            self.incomplete,
            self.queues,
            entropy=SimEntropy(seed),
            partitioner=partitioner or KeyPartitioner(),
        )
