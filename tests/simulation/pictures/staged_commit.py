"""The scripted run of the diagram of staged commits in docs/transactions.md: a driver and two
tasks on three simulated nodes.

Each task stages one record in one partition, with the Produce request of the Kafka protocol. The
requests of the driver and of the tasks, and the calls between the nodes, are traced as in
`transaction`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tests.kit.kafka_client import connect
from tests.kit.node import WAIT_MS
from tests.kit.simulated_cluster import Play, cluster

from quorumlog.errors import CoordinatorLoading
from quorumlog.proto import admin_pb2
from quorumlog.proto import staged_commits_pb2 as pb
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Method, Network, Runtime
from quorumlog.services import (
    ADMIN_CREATE_TOPIC,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_OPEN_WRITE,
    STAGED_COMMITS_SEAL,
)

from ..levels.core.trace import TraceEvent
from .transaction import (
    CLIENT,
    KAFKA_PORT,
    PATIENCE_MS,
    PRODUCE,
    TIMEOUT_MS,
    TOPIC,
    Trace,
    TracedClient,
    TracedNetwork,
    ends,
    name_at,
    traced_runtime,
)

TITLE: Final = "Two tasks stage their records, and one commit makes them visible"
DRIVER, TASKS = CLIENT, (-1, -2)
"""The columns of the clients; nodes have their ids."""
COORDINATOR, LEADERS = 1, (2, 3)
HEADS: Final = {
    DRIVER: "driver",
    TASKS[0]: "task 0",
    TASKS[1]: "task 1",
    COORDINATOR: "coordinator of the name",
    LEADERS[0]: "leader of out-0",
    LEADERS[1]: "leader of out-1",
}


def play_staged_commit() -> tuple[list[TraceEvent], list[int]]:
    """Run the script; return its trace and its columns."""
    trace = Trace(now_us=lambda: 0)
    with cluster(
        combined=True,
        brokers=3,
        kafka=[f"{{}}:{KAFKA_PORT}"],
        runtime_of=lambda node, runtime: traced_runtime(runtime, trace, node),
    ) as play:
        play.ask(lambda runtime: _script(runtime, play, trace))
    return trace.events, list(HEADS)


class _Caller:
    """A client of the coordinator in a column of its own."""

    def __init__(self, network: Network, trace: Trace, column: int) -> None:
        self._channel = TracedNetwork(network, trace, column).channel(f"n{COORDINATOR}:9094")
        self._trace = trace

    async def ask(self, method: Method[Any, Any], request: Any, label: Callable[[Any], str]) -> Any:
        """Send a request and return its answer, which `label` names in the diagram."""
        answer = await self._channel.call(method, request, timeout_ms=TIMEOUT_MS)
        self._trace.label(self._trace.last_delivered, label(answer))
        return answer


async def _script(runtime: Runtime, play: Play, trace: Trace) -> None:
    channel = runtime.network.channel(f"n{COORDINATOR}:9094")
    topic = admin_pb2.CreateTopicRequest(
        name=TOPIC,
        assignments=[
            admin_pb2.ReplicaAssignment(replicas=[leader, *({1, 2, 3} - {leader})])
            for leader in LEADERS
        ],
    )
    await channel.call(ADMIN_CREATE_TOPIC, topic, timeout_ms=WAIT_MS)
    clients = {node: await connect(runtime, f"n{node}:{KAFKA_PORT}") for node in LEADERS}
    name = await name_at(clients[LEADERS[0]], 1, COORDINATOR)
    for _ in range(PATIENCE_MS):
        if _is_loaded(play):
            break
        await asyncio.sleep(0.001)  # of virtual time
    begin_us = play.world.loop.now_ns // 1000
    trace.now_us = lambda: play.world.loop.now_ns // 1000 - begin_us
    trace.states = lambda: _states(play)
    driver = _Caller(runtime.network, trace, DRIVER)
    opened = await driver.ask(
        STAGED_COMMITS_OPEN_WRITE, pb.OpenWriteRequest(), lambda answer: f"write {answer.write_id}"
    )
    attempts = []
    for task, (column, leader) in enumerate(zip(TASKS, LEADERS, strict=True)):
        caller = _Caller(runtime.network, trace, column)
        produce = TracedClient(clients[leader], trace, leader, column)
        attempts.append(await _run_task(caller, produce, name, opened.write_id, task))
    await driver.ask(
        STAGED_COMMITS_COMMIT,
        pb.CommitStageRequest(name=name, number=0, write_id=opened.write_id, attempts=attempts),
        lambda answer: f"committed, {answer.committed.records} records",
    )
    for _ in range(PATIENCE_MS):
        if all(end == stable for end, stable in _ends(play)):
            break
        await asyncio.sleep(0.001)  # of virtual time
    trace.look()


async def _run_task(
    caller: _Caller, produce: TracedClient, name: str, write_id: int, task: int
) -> pb.CommittedAttempt:
    """Stage one record in the partition of the task's number."""
    begun = await caller.ask(
        STAGED_COMMITS_BEGIN,
        pb.BeginAttemptRequest(name=name, number=0, write_id=write_id, task=task, attempt=task),
        lambda answer: f"id {answer.producer.producer_id}",
    )
    batch = encode_batch(
        [Record(0, 0, None, b"a")],
        producer_id=begun.producer.producer_id,
        producer_epoch=begun.producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    await produce.ask(
        PRODUCE,
        lambda _: "acknowledged",
        transactional_id=name,
        acks=-1,
        timeout=TIMEOUT_MS,
        topic_data=[{"name": TOPIC, "partition_data": [{"index": task, "records": batch}]}],
    )
    counts = pb.SealedPartition(topic=TOPIC, partition=task, records=1, last_sequence=0)
    await caller.ask(
        STAGED_COMMITS_SEAL,
        pb.SealAttemptRequest(name=name, producer=begun.producer, partitions=[counts]),
        lambda _: "sealed",
    )
    return pb.CommittedAttempt(task=task, producer=begun.producer)


def _ends(play: Play) -> list[tuple[int, int]]:
    """Return the log end offset and the last stable offset of each partition."""
    return [ends(play, leader, TOPIC, number) for number, leader in enumerate(LEADERS)]


def _is_loaded(play: Play) -> bool:
    try:
        _states(play)
    except CoordinatorLoading:
        return False
    return True


def _states(play: Play) -> list[tuple[int, str, str]]:
    """Return node, text and band of each part."""
    found = []
    node = play[COORDINATOR].node
    assert node is not None, "the node is down"
    assert node.parts.transactions is not None, "the node is no broker"
    shards = node.parts.transactions.loaded_shards()
    stages = [stage for shard in shards for stage in shard.staged_names() if stage is not None]
    for stage in sorted(stages, key=lambda each: each.name):
        completing = stage.attempts - stage.open - stage.sealed
        counts = {"open": stage.open, "sealed": stage.sealed, "committing": completing}
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        band = "decided" if completing else "open"
        if not stage.attempts:
            text, band = f"batch {stage.last_committed} complete", "complete"
        found.append((COORDINATOR, text, band))
    for leader, (end, stable) in zip(LEADERS, _ends(play), strict=True):
        found.append((leader, f"end {end}, LSO {stable}", "open" if stable < end else "idle"))
    return found
