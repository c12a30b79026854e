"""The systems: quorumlog and Apache Kafka with equal settings."""

from functools import partial
from typing import Any, Final

from benchmarks.kafka_wire import apache_kafka, ours
from benchmarks.kafka_wire.cases import EITHER
from benchmarks.kafka_wire.systems import Kind

STATE_TOPIC: Final = "__transaction_state"
TIMEOUT_MS: Final = 900_000  # of transactions: the default maximum of both
SETTINGS: Final[dict[str, Any]] = {"transaction.state.log.num.partitions": 1}
"""One partition: one coordinator has all transactional ids."""

OURS: Final = Kind(
    name=ours.NAME,
    open=partial(ours.nodes, settings=SETTINGS),
    brokers=EITHER,
    configs={"flush.policy": "replicated"},
)
KAFKA: Final = Kind(
    name=apache_kafka.NAME,
    open=partial(apache_kafka.kafka, settings=SETTINGS),
    brokers=EITHER,
    warms_up=True,
)


def kinds() -> tuple[list[Kind], list[str]]:
    """Return the systems that can run here, quorumlog first, and a line for each missing one."""
    if apache_kafka.is_here():
        return [OURS, KAFKA], []
    return [OURS], [apache_kafka.MISSING]
