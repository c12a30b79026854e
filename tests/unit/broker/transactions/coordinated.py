"""Whole simulated nodes with transactions, and requests to them past every front end."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.kit.node_settings import with_settings
from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker.purgatory import Acks
from quorumlog.broker.transactions.requests import (
    AddedPartitions,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    TransactionRequest,
)
from quorumlog.broker.transactions.shell import TransactionCoordinator
from quorumlog.broker.verification import TransactionalWrite
from quorumlog.errors import QuorumlogError
from quorumlog.ids import ProducerIdentity
from quorumlog.records import Record, encode_batch, iterate_batches
from quorumlog.records.control import MarkerType, parse_marker
from quorumlog.runtime import Runtime
from quorumlog.storage.shell import Appended

R = TypeVar("R")
T = TypeVar("T")

NAME = "loader"
ANSWER_MS = 20_000


@contextmanager
def cluster(*numbers: int, seed: int = 1, **settings: Any) -> Iterator[Cluster]:
    """Started nodes; `__transaction_state` will have one partition."""
    with world(seed) as simulated:
        nodes = Cluster(simulated, numbers or (1, 2, 3))
        settings.setdefault("transaction_state_log_num_partitions", 1)
        nodes.configs = {
            n: with_settings(config, **settings) for n, config in nodes.configs.items()
        }
        nodes.start()
        yield nodes


def coordinator(nodes: Cluster, number: int) -> TransactionCoordinator:
    found = nodes.nodes[number].parts.transactions
    assert found is not None
    return found


def on(nodes: Cluster, number: int, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run something in a node's process."""
    task = nodes.machine(number).attach(work, name="test")
    nodes.world.run_until(task, virtual_ms=60_000)
    found: T = task.result()
    return found


def begun(
    nodes: Cluster, number: int, request: TransactionRequest[R], answer_ms: int = ANSWER_MS
) -> "asyncio.Task[R]":
    """Send a request to a node, and return at once."""

    async def main(runtime: Runtime) -> R:
        deadline_ms = runtime.clock.now_ms() + answer_ms
        return await coordinator(nodes, number).ask(request, deadline_ms=deadline_ms)

    return nodes.machine(number).attach(main, name="ask")


def asked(nodes: Cluster, number: int, request: TransactionRequest[R]) -> R:
    """Send a request to a node; raises its error."""
    task = begun(nodes, number, request)
    nodes.world.run_until(task, virtual_ms=60_000)
    return task.result()


def tried(nodes: Cluster, request: TransactionRequest[R]) -> R:
    """Send a request to the coordinator until its error is not retriable."""
    for _ in range(300):
        number = coordinating(nodes)
        if number in nodes.nodes:
            try:
                return asked(nodes, number, request)
            except QuorumlogError as error:
                if not error.retriable:
                    raise
        nodes.world.run_for(100)
    return asked(nodes, coordinating(nodes), request)


def coordinating(nodes: Cluster) -> int:
    """The coordinator; creates the topic."""
    number = min(nodes.nodes)

    async def main(runtime: Runtime) -> int:
        deadline_ms = runtime.clock.now_ms() + ANSWER_MS
        for _ in range(100):
            try:
                return await coordinator(nodes, number).coordinator_of(
                    NAME, deadline_ms=deadline_ms
                )
            except QuorumlogError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(0.1)
        raise AssertionError("no coordinator")

    return on(nodes, number, main)


def create(nodes: Cluster, topic: str, partitions: int = 1) -> None:
    nodes.run(lambda log: log.admin.create_topic(topic, partitions=partitions))
    nodes.until(lambda: all(led(nodes, topic, index) for index in range(partitions)))


def led(nodes: Cluster, topic: str, partition: int = 0) -> int:
    """The leader of a partition that all nodes agree on; 0: none."""
    found = set()
    for node in nodes.nodes.values():
        assert node.parts.publisher is not None
        image = node.parts.publisher.image.topic(topic)
        found.add(-1 if image is None else image.partitions[partition].leader)
    return max(found) if len(found) == 1 and min(found) in nodes.nodes else 0


def init(nodes: Cluster, name: str = NAME, timeout_ms: int = 60_000) -> ProducerIdentity:
    return tried(nodes, InitProducerId(transactional_id=name, timeout_ms=timeout_ms))


def add(
    nodes: Cluster, producer: ProducerIdentity, *partitions: tuple[str, int], name: str = NAME
) -> AddedPartitions:
    return tried(
        nodes, AddPartitions(transactional_id=name, producer=producer, partitions=partitions)
    )


def end(
    nodes: Cluster,
    producer: ProducerIdentity,
    *,
    commit: bool = True,
    bumps_epoch: bool = True,
    name: str = NAME,
) -> ProducerIdentity:
    return tried(
        nodes,
        EndTransaction(
            transactional_id=name, producer=producer, commit=commit, bumps_epoch=bumps_epoch
        ),
    )


def produced(
    nodes: Cluster,
    topic: str,
    producer: ProducerIdentity,
    sequence: int,
    *values: bytes,
    partition: int = 0,
    adds: bool = False,
    name: str = NAME,
) -> "asyncio.Task[Appended]":
    """Append a transactional batch at the leader, and return at once."""

    async def main(runtime: Runtime) -> Appended:
        manager = nodes.nodes[leader].parts.replicas
        assert manager is not None
        batch = encode_batch(
            [Record(0, 1, None, value) for value in values],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        append = await manager.writer.submit(
            topic,
            partition,
            batch,
            acks=Acks.ALL,
            leader_epoch=None,
            transaction=TransactionalWrite(name, adds, knows_abortable=True),
        )
        return await append.wait_until(runtime.clock, runtime.clock.now_ms() + ANSWER_MS)

    leader = led(nodes, topic, partition)
    return nodes.machine(leader).attach(main, name="produce")


def send(nodes: Cluster, *arguments: Any, **options: Any) -> Appended:
    task = produced(nodes, *arguments, **options)
    nodes.world.run_until(task, virtual_ms=60_000)
    return task.result()


def markers(nodes: Cluster, topic: str, partition: int = 0) -> Sequence[tuple[int, bool]]:
    """Epoch and outcome of each marker in a partition, at its leader."""
    log = nodes.replica(nodes.leader(topic, partition), topic, partition).log
    parsed, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=1 << 20)
        assert found is not None
        content = found.read()
        found.release()
        for position, header in iterate_batches(content):
            if header.is_control:
                parsed.append((header.producer_epoch, parse_marker(content, position, header)))
        offset = found.end_of(content)
    return [(epoch, each.kind is MarkerType.COMMIT) for epoch, each in parsed if each is not None]


def stable(nodes: Cluster, topic: str, partition: int = 0) -> bool:
    """True if the partition has no open transaction, and all of it is committed."""
    replica = nodes.replica(nodes.leader(topic, partition), topic, partition)
    log = replica.log
    return log.last_stable_offset == log.log_end_offset == replica.partition.high_watermark
