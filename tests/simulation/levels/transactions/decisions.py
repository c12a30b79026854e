"""The end of a run with transactions: after the faults each one must be decided."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quorumlog.broker.coordinator.key_hash import partition_of
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import Place

from ...checkers.violation import Violation
from ...cluster.nodes import Cluster
from .clients import ReadingMachine
from .plan import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ..node.level import Run

T = TypeVar("T")

DECIDED_MS: Final = 120_000  # bound for every transaction to be decided after the faults
LOOK_MS: Final = 60_000
STEPS: Final = 10  # between two looks


def ask(run: "Run", machine: str, main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run a program on a client machine and return its result."""
    task = run.world.node(machine).attach(main, name="a last look")
    run.wait(task.done, LOOK_MS, "a last look")
    found: T = task.result()
    return found


def wait_for_decisions(run: "Run", reader: ReadingMachine, places: list[Place]) -> None:
    """Wait until no transaction is open anywhere, and each last stable offset is the high
    watermark; raises Violation."""
    end_ms = run.world.now_ms() + DECIDED_MS
    while left := ask(run, reader.name, lambda runtime: reader.undecided(runtime, places)):
        if run.world.now_ms() >= end_ms:
            raise Violation("Hanging", f"undecided after {DECIDED_MS} ms: {left[:6]}")
        for _ in range(STEPS):
            run.step()


def coordinator_epoch(cluster: Cluster, transactional_id: str) -> int:
    """Return the leader epoch of the partition that stores a transactional id."""
    topic = cluster.newest_image.topic(TRANSACTIONS_TOPIC)
    if topic is None:
        return 0
    index = partition_of(transactional_id, len(topic.partitions))
    return topic.partitions[index].leader_epoch
