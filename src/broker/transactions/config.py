"""Settings and limits of transactions."""

from dataclasses import dataclass
from typing import Final

from ...settings import setting

TRANSACTIONS_TOPIC: Final = "__transaction_state"
TRANSACTION_VERSION: Final = "transaction.version"
"""The feature of the transaction protocol. From its finalized level 2 on, every abort by the
coordinator raises the producer's epoch in the way of EndTxn version 5 (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The settings of the transaction coordinator, equal on all brokers."""

    partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        "Number of partitions of __transaction_state at its creation. Transactional ids, and so "
        "the load of their coordinators, are spread over them. It cannot be changed later.",
        unit="partitions",
        low=1,
        high=1_000,
    )
    replicas: int = setting(
        "transaction.state.log.replication.factor",
        0,
        "Replication factor of __transaction_state at its creation. 0: the number of initial "
        "voters of the cluster, at most 3. The topic is created once as many brokers are "
        "registered; until then, transactional ids have no coordinator.",
        unit="replicas",
        low=0,
        high=100,
    )
    timeout_max_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        "Maximum transaction timeout that a producer may request. A transaction that is open for "
        "longer than its timeout is aborted; read_committed consumers wait for it until then.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * 24 * 3_600_000,
        "Time without a change after which a transactional id is deleted. An id with an open "
        "transaction does not expire.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    staged_attempts_max: int = setting(
        "staged.attempts.max",
        5_000,
        "Maximum number of task attempts of one staged write. Each holds a producer id until its "
        "markers are written. Begin is refused (CONCURRENT_TRANSACTIONS) while at least twice "
        "this number of attempts of the name wait for their markers. An attempt takes one of "
        "`producer.ids.max` in each partition that it writes to, so raise both together.",
        unit="attempts",
        low=1,
        high=100_000,
    )
