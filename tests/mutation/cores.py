"""The decision cores that are mutated under simulation, and the seeds that run them.

A core has the modules that decide, without their shells, formats, settings and values. Its levels
are in the order of their cost. The seeds of a level are those of `make simulate-briefly`, which CI
runs.
"""

from dataclasses import dataclass
from typing import Final

from .mutants import MODULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Modules with decisions, and the levels that run them."""

    name: str
    modules: tuple[str, ...]
    levels: tuple[str, ...]  # the cheapest one first


def _of(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


CORES: Final = (
    Core(name="raftlog", modules=MODULES, levels=("core", "quorum")),
    Core(
        name="replication",
        modules=_of("broker", "isr partition partition_follower partition_leader purgatory"),
        levels=("partitions", "node", "kafka"),
    ),
    Core(
        name="metadata",
        modules=(
            *_of("metadata", "controller decision delta image partition_set replay sessions"),
            *_of(
                "metadata.decisions",
                "alter_partitions balance brokers configs elections features placement"
                " producer_ids reassignment steps topics",
            ),
        ),
        levels=("partitions", "node", "intruder"),
    ),
    Core(
        name="storage",
        modules=_of(
            "storage",
            "append cleaner compaction index leader_epochs log log_to_clean producer_snapshot"
            " producer_state producer_state_manager read recovery retention segment_files segments"
            " time_lookup transaction_index truncation",
        ),
        levels=("broker", "clients", "storage", "node", "kafka", "transactions"),
    ),
    Core(
        name="groups",
        modules=(
            *_of(
                "broker.groups",
                "classic_group classic_members classic_rebalance offsets pending_offsets shard"
                " transactional_producers",
            ),
            *_of(
                "broker.groups.consumer",
                "assignors classic_members classic_upgrade core group heartbeat reconciliation"
                " state subscriptions",
            ),
        ),
        levels=("coordinator", "groups"),
    ),
    Core(
        name="transactions",
        modules=_of("broker.transactions", "marker_queue shard staged_commits transaction"),
        levels=("transactions", "kafka"),
    ),
    Core(
        name="clients",
        modules=(
            *_of(
                "clients.producer",
                "accumulator incomplete_batches partition_queue ready_queues retry sender sequences"
                " transaction_state",
            ),
            *_of("clients.consumer", "assigned_partitions fetcher partition_reader"),
            *_of("clients.groups", "commits member membership reconciler"),
        ),
        levels=("clients", "groups", "node", "transactions"),
    ),
)

CI_SEEDS: Final = {
    "core": range(60),
    "partitions": range(40),
    "quorum": range(10),
    "node": range(16, 22),
    "intruder": range(4),
    "kafka": range(16, 17),
    "coordinator": range(40),
    "groups": range(16, 22),
    "transactions": range(2),
    "broker": range(20),
    "clients": range(20),
    "evil": range(10),
    "storage": range(2),
}
"""By level, as in the Makefile; a test compares them."""


def core_of(name: str) -> Core:
    """Return a core. Raise KeyError."""
    return {core.name: core for core in CORES}[name]


def seeds_of(level: str, times: int = 1) -> range:
    """Return the seeds that CI runs, or `times` as many from the same first one."""
    seeds = CI_SEEDS[level]
    return range(seeds.start, seeds.start + times * len(seeds))
