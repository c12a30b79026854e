"""The scripted run of the diagram in docs/transactions.md: one transaction of a client of the Kafka
protocol on three simulated nodes.

The requests of the client, and the calls between the nodes about transactions, are traced at the
network port; the states are read from the nodes after each message. The client uses the newer
protocol (`transaction.version` 2).
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, TypeAlias, cast

from tests.kit.kafka_client import RawClient, connect
from tests.kit.node import WAIT_MS
from tests.kit.simulated_cluster import Play, cluster

from quorumlog.broker.coordinator.key_hash import partition_of
from quorumlog.proto import admin_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Buffer, Handler, Method, Network, Runtime
from quorumlog.services import ADMIN_CREATE_TOPIC

from ..levels.core.trace import Delivered, Sent, StateChanged, TraceEvent

TITLE: Final = "A transaction writes a record and an offset, and commits"
CLIENT: Final = 0
"""The column of the client; nodes have their ids."""
COORDINATOR, LEADER, GROUPS = 1, 2, 3
HEADS: Final = {
    CLIENT: "producer",
    COORDINATOR: "transaction coordinator",
    LEADER: "leader of out-0",
    GROUPS: "group coordinator",
}
KAFKA_PORT: Final = 9092
CALLS: Final = ("/quorumlog.v1.TransactionCoordination/", "/quorumlog.v1.StagedCommits/")
"""Prefixes of the traced methods."""
PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID = (0, 12), (10, 4), (22, 5)
END_TXN, TXN_OFFSET_COMMIT, OFFSET_FETCH = (26, 5), (28, 5), (9, 8)
NAMES: Final = {
    PRODUCE: "Produce",
    INIT_PRODUCER_ID: "InitProducerId",
    END_TXN: "EndTxn (commit)",
    TXN_OFFSET_COMMIT: "TxnOffsetCommit",
}
TOPIC: Final = "out"
OFFSETS: Final = "__consumer_offsets"
PARTITIONS: Final = 50  # of each internal topic
TIMEOUT_MS: Final = 60_000
PATIENCE_MS: Final = 2_000
TRIES: Final = 20  # of each name
BANDS: Final = {
    "Empty": "idle",
    "Ongoing": "open",
    "PrepareCommit": "decided",
    "CompleteCommit": "complete",
}

Kind: TypeAlias = tuple[int, int]
"""Key and version of a request."""


@dataclass(slots=True)
class Trace:
    """The messages and states of one run, and the messages that have not arrived."""

    now_us: Callable[[], int]
    states: Callable[[], Sequence[tuple[int, str, str]]] = tuple
    """Returns (node, text, band) of each node."""
    events: list[TraceEvent] = field(default_factory=list)
    requests: defaultdict[tuple[int, str], deque[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    """By receiver and method: number and sender of each request on its way, in order."""
    responses: defaultdict[tuple[int, str], deque[int]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    """By sender and method: the number of each response on its way, in order; the column of its
    client before it leaves."""
    last_delivered: int = 0
    _seen: dict[int, tuple[str, str]] = field(default_factory=dict)
    _count: int = 0

    def send(self, sender: int, receiver: int, message: str) -> int:
        """Record a message on its way; return its number."""
        self.look()
        self._count += 1
        self.events.append(
            Sent(
                at_us=self.now_us(),
                number=self._count,
                sender=sender,
                receiver=receiver,
                message=message,
                detail="",
                epoch=-1,
            )
        )
        return self._count

    def label(self, number: int, message: str) -> None:
        """Replace the text of a message."""
        self.events = [
            replace(event, message=message)
            if isinstance(event, Sent) and event.number == number
            else event
            for event in self.events
        ]

    def deliver(self, number: int) -> None:
        """Record an arrival."""
        self.events.append(Delivered(at_us=self.now_us(), number=number))
        self.last_delivered = number
        self.look()

    def look(self) -> None:
        """Record the states that have changed."""
        for node, text, band in self.states():
            if self._seen.get(node) != (text, band):
                self._seen[node] = text, band
                self.events.append(
                    StateChanged(at_us=self.now_us(), node=node, text=text, band=band)
                )


# --- tracing at the network port -----------------------------------------------------------------


class _Delegate:
    """Passes on the calls that a subclass does not trace."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TracedNetwork(_Delegate):
    """The network of one node."""

    def __init__(self, inner: Network, trace: Trace, node: int) -> None:
        super().__init__(inner)
        self._trace = trace
        self._node = node

    def channel(self, address: str) -> Any:
        """Trace calls about transactions."""
        return _TracedChannel(self._inner.channel(address), self._trace, self._node, address)

    async def serve(self, address: str, handlers: Mapping[str, Handler], **options: Any) -> Any:
        """Trace their arrival and their responses."""
        traced = {
            path: self._traced(handler) if path.startswith(CALLS) else handler
            for path, handler in handlers.items()
        }
        return await self._inner.serve(address, traced, **options)

    def _traced(self, handler: Handler) -> Handler:
        trace, place = self._trace, (self._node, handler.method.path)

        async def call(request: Any, context: Any) -> Any:
            number, caller = trace.requests[place].popleft()
            trace.deliver(number)
            answer = await cast("Any", handler.call)(request, context)
            trace.responses[place].append(trace.send(self._node, caller, "done"))
            return answer

        return replace(handler, call=call)

    async def listen_bytes(self, address: str, factory: Callable[[Any], Any]) -> Any:
        """Trace the arrival of the client's requests, and their responses."""
        if not address.endswith(f":{KAFKA_PORT}"):
            return await self._inner.listen_bytes(address, factory)
        return await self._inner.listen_bytes(
            address,
            lambda connection: _TracedProtocol(
                factory(_TracedConnection(connection, self._trace, self._node)),
                self._trace,
                self._node,
            ),
        )


def traced_runtime(runtime: Runtime, trace: Trace, node: int) -> Runtime:
    """Return the ports of a node with a traced network."""
    return replace(runtime, network=cast("Network", TracedNetwork(runtime.network, trace, node)))


class _TracedChannel(_Delegate):
    def __init__(self, inner: Any, trace: Trace, node: int, address: str) -> None:
        super().__init__(inner)
        self._trace = trace
        self._node = node
        self._peer = int(address.partition(":")[0].removeprefix("n") or 0)

    async def call(self, method: Method[Any, Any], request: Any, **options: Any) -> Any:
        if not method.path.startswith(CALLS):
            return await self._inner.call(method, request, **options)
        trace, place = self._trace, (self._peer, method.path)
        number = trace.send(self._node, self._peer, method.path.rpartition("/")[2])
        trace.requests[place].append((number, self._node))
        answer = await self._inner.call(method, request, **options)
        trace.deliver(trace.responses[place].popleft())
        return answer


class _TracedProtocol(_Delegate):
    """The server's side of a connection: a traced request arrives with the next bytes."""

    def __init__(self, inner: Any, trace: Trace, node: int) -> None:
        super().__init__(inner)
        self._trace = trace
        self._place = node, ""

    def received(self, count: int) -> None:
        if self._trace.requests[self._place]:
            self._trace.deliver(self._trace.requests[self._place].popleft()[0])
        self._inner.received(count)


class _TracedConnection(_Delegate):
    """The server's side of a connection: a traced response leaves with the next bytes."""

    def __init__(self, inner: Any, trace: Trace, node: int) -> None:
        super().__init__(inner)
        self._trace = trace
        self._node = node

    def write(self, buffers: Sequence[Buffer], *, more: bool = False, now: bool = False) -> None:
        responses = self._trace.responses[self._node, ""]
        if responses and responses[0] <= CLIENT:
            responses[0] = self._trace.send(self._node, responses[0], "")
        self._inner.write(buffers, more=more, now=now)


class TracedClient:
    """A connection of a client to one node."""

    def __init__(self, client: RawClient, trace: Trace, node: int, column: int = CLIENT) -> None:
        self._client = client
        self._trace = trace
        self._node = node
        self._column = column  # of the client, at most CLIENT

    async def ask(self, kind: Kind, label: Callable[[Any], str], **request: Any) -> Any:
        """Send a request and return its answer, which `label` names in the diagram."""
        trace, place = self._trace, (self._node, "")
        column = self._column
        trace.requests[place].append((trace.send(column, self._node, NAMES[kind]), column))
        trace.responses[place].append(column)  # the response has no number before it leaves
        answer = await self._client.ask(*kind, **request)
        assert not _errors(answer), (NAMES[kind], answer)
        number = trace.responses[place].popleft()
        trace.label(number, label(answer))
        trace.deliver(number)
        return answer


def _errors(answer: Any) -> list[int]:
    """Return the error codes in a response and in its parts."""
    if isinstance(answer, tuple):
        return [code for part in answer for code in _errors(part)]
    if not is_dataclass(answer):
        return []
    own = int(getattr(answer, "error_code", 0))
    parts = (_errors(getattr(answer, each.name)) for each in fields(answer))
    return [code for codes in ([own], *parts) for code in codes if code]


# --- the script ----------------------------------------------------------------------------------


def play_transaction() -> tuple[list[TraceEvent], list[int]]:
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


async def _script(runtime: Runtime, play: Play, trace: Trace) -> None:
    channel = runtime.network.channel("n1:9094")
    order = [LEADER, GROUPS, COORDINATOR]
    topic = admin_pb2.CreateTopicRequest(
        name=TOPIC, assignments=[admin_pb2.ReplicaAssignment(replicas=order)]
    )
    await channel.call(ADMIN_CREATE_TOPIC, topic, timeout_ms=WAIT_MS)
    clients = {node: await connect(runtime, f"n{node}:{KAFKA_PORT}") for node in play.machines}
    application = await name_at(clients[COORDINATOR], 1, COORDINATOR)
    group = await name_at(clients[COORDINATOR], 0, GROUPS)
    for _ in range(PATIENCE_MS):
        if not _errors(await clients[GROUPS].ask(*OFFSET_FETCH, groups=[{"group_id": group}])):
            break
        await asyncio.sleep(0.001)  # of virtual time, until the coordinator has loaded the group
    begin_us = play.world.loop.now_ns // 1000
    trace.now_us = lambda: play.world.loop.now_ns // 1000 - begin_us
    trace.states = lambda: _states(play, group)
    traced = {node: TracedClient(client, trace, node) for node, client in clients.items()}
    await _commit(traced, application, group)
    for _ in range(PATIENCE_MS):
        if _transaction(play) == "CompleteCommit":
            break
        await asyncio.sleep(0.001)  # of virtual time
    trace.look()


async def _commit(clients: Mapping[int, TracedClient], application: str, group: str) -> None:
    """Write a record and an offset in a transaction, and commit it."""
    identity = await clients[COORDINATOR].ask(
        INIT_PRODUCER_ID,
        lambda answer: f"id {answer.producer_id}, epoch {answer.producer_epoch}",
        transactional_id=application,
        transaction_timeout=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    producer = {
        "transactional_id": application,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }
    batch = encode_batch(
        [Record(0, 0, None, b"a")],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    await clients[LEADER].ask(
        PRODUCE,
        lambda _: "acknowledged",
        transactional_id=application,
        acks=-1,
        timeout=TIMEOUT_MS,
        topic_data=[{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
    )
    await clients[GROUPS].ask(
        TXN_OFFSET_COMMIT,
        lambda _: "stored",
        group_id=group,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            {
                "name": TOPIC,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 1,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
        **producer,
    )
    await clients[COORDINATOR].ask(
        END_TXN, lambda answer: f"epoch {answer.producer_epoch}", committed=True, **producer
    )


async def name_at(client: RawClient, key_type: int, node: int) -> str:
    """Return a group or transactional id that a node coordinates."""
    for number in range(PATIENCE_MS):
        name = f"app-{number // TRIES}"
        answer = await client.ask(*FIND_COORDINATOR, key_type=key_type, coordinator_keys=(name,))
        (found,) = answer.coordinators
        if int(found.error_code):
            await asyncio.sleep(0.1)  # of virtual time, until the topic exists
        elif int(found.node_id) == node:
            return name
    raise AssertionError(f"no name is coordinated by node {node}")


def _states(play: Play, group: str) -> list[tuple[int, str, str]]:
    """Return node, text and band of each part."""
    found = []
    if state := _transaction(play):
        found.append((COORDINATOR, state, BANDS[state]))
    end, stable = ends(play, LEADER, TOPIC, 0)
    found.append((LEADER, f"end {end}, LSO {stable}", "open" if stable < end else "idle"))
    end, stable = ends(play, GROUPS, OFFSETS, partition_of(group, PARTITIONS))
    if stable < end:
        found.append((GROUPS, "offset pending", "open"))
    elif end:
        found.append((GROUPS, "offset committed", "idle"))
    return found


def _transaction(play: Play) -> str:
    """Return the state of the transactional id at its coordinator; empty before its first one."""
    node = play[COORDINATOR].node
    assert node is not None, "the node is down"
    assert node.parts.transactions is not None, "the node is no broker"
    shards = node.parts.transactions.loaded_shards()
    listed = (each.state for shard in shards for each in shard.listings() if each is not None)
    return next(listed, "")


def ends(play: Play, number: int, topic: str, partition: int) -> tuple[int, int]:
    """Return the log end offset and the last stable offset of a partition at a node."""
    node = play[number].node
    assert node is not None, "the node is down"
    assert node.parts.replicas is not None, "the node is no broker"
    replica = node.parts.replicas.hosted.find(topic, partition)
    if replica is None or not replica.is_open:
        return 0, 0
    return replica.log.log_end_offset, replica.log.last_stable_offset
