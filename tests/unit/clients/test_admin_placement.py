"""Partition placement in the admin client: validation of arguments, and retries."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.clients.admin.admin import AsyncAdmin
from quorumlog.clients.blocking.admin import Admin
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    NoReassignmentInProgress,
    NotController,
    QuorumlogError,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import (
    ADMIN_ALTER_REASSIGNMENTS,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_REPLICAS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    ADMIN_UNREGISTER_BROKER,
)

PLACE = ("t", 0)


@dataclass
class Broker:
    """A broker that loses its responses as often as a test requires, after executing the
    request."""

    runtime: Runtime
    lost: int = 1  # responses to lose
    moving: bool = True
    registered: bool = True
    asked: list[Any] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)  # partitions by name
    address: str = ""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncLog]:
        table = (
            Handler(ADMIN_DESCRIBE_CLUSTER, self._cluster),
            Handler(ADMIN_ALTER_REASSIGNMENTS, self._alter),
            Handler(ADMIN_UNREGISTER_BROKER, self._unregister),
            Handler(ADMIN_LIST_TOPICS, self._list),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe),
            Handler(ADMIN_DESCRIBE_REPLICAS, self._replicas),
        )
        handlers = {handler.method.path: handler for handler in table}
        listener = await self.runtime.network.serve("127.0.0.1:0", handlers)
        self.address = listener.address
        async with make_log(self.runtime, self.address) as log:
            yield log
        await listener.close(0)

    def _lose(self) -> None:
        if self.lost:
            self.lost -= 1
            raise NotController("led by another one since")

    async def _cluster(
        self, request: pb.DescribeClusterRequest, _: CallContext
    ) -> pb.DescribeClusterResponse:
        brokers = [pb.BrokerDescription(id=1, grpc_address=self.address)]
        return pb.DescribeClusterResponse(cluster_id="c", brokers=brokers)

    async def _alter(
        self, request: pb.AlterReassignmentsRequest, _: CallContext
    ) -> pb.AlterReassignmentsResponse:
        self.asked.append(request)
        was_moving, self.moving = self.moving, False
        self._lose()
        response = pb.AlterReassignmentsResponse()
        for part in request.partitions:
            result = response.results.add(topic=part.topic, partition=part.partition)
            if not was_moving:
                result.error.CopyFrom(encode_error(NoReassignmentInProgress("it is not moved")))
        return response

    async def _unregister(
        self, request: pb.UnregisterBrokerRequest, _: CallContext
    ) -> pb.UnregisterBrokerResponse:
        was_registered, self.registered = self.registered, False
        self._lose()
        if not was_registered:
            raise BrokerIdNotRegistered("there is none")
        return pb.UnregisterBrokerResponse()

    async def _list(self, request: pb.ListTopicsRequest, _: CallContext) -> pb.ListTopicsResponse:
        rows = [pb.TopicListing(name=name, partitions=n) for name, n in self.topics.items()]
        return pb.ListTopicsResponse(topics=rows)

    async def _describe(
        self, request: pb.DescribeTopicsRequest, _: CallContext
    ) -> pb.DescribeTopicsResponse:
        self.asked.append(list(request.names))
        response = pb.DescribeTopicsResponse()
        for name in request.names:
            result = response.results.add(name=name)
            if self.topics.get(name, 0) < 1:
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("none", topic=name)))
                continue
            result.topic.name, result.topic.topic_id = name, b"0" * 16
            for index in range(self.topics[name]):
                result.topic.partitions.add(partition=index, leader=1, replicas=[1], isr=[1])
        return response

    async def _replicas(
        self, request: pb.DescribeReplicasRequest, _: CallContext
    ) -> pb.DescribeReplicasResponse:
        return pb.DescribeReplicasResponse(partitions=[{"topic": "another"}])


def with_broker(work: Callable[[Broker, AsyncLog], Coroutine[Any, Any, None]]) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime)
        async with broker.client() as log:
            await work(broker, log)

    simulation.run(main)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_cancelled_move_whose_answer_was_lost_counts_as_cancelled(lost: int) -> None:
    async def work(broker: Broker, log: AsyncLog) -> None:
        broker.lost = lost
        (outcome,) = await log.admin.cancel_reassignments([PLACE])
        assert outcome.error is None
        assert len(broker.asked) == lost + 1
        (again,) = await log.admin.cancel_reassignments(PLACE)  # one response or several
        assert isinstance(again.error, NoReassignmentInProgress), "no response was lost this time"

    with_broker(work)


@pytest.mark.parametrize("lost", [0, 1])
def test_unregistration_whose_response_was_lost_counts_as_done(lost: int) -> None:
    async def work(broker: Broker, log: AsyncLog) -> None:
        broker.lost = lost
        await log.admin.unregister_broker(3)
        with pytest.raises(BrokerIdNotRegistered):
            await log.admin.unregister_broker(3)

    with_broker(work)


def test_many_reassignments_are_split_into_several_requests() -> None:
    async def work(broker: Broker, log: AsyncLog) -> None:
        broker.lost = 0
        targets = {("t", number): [1] for number in range(2_500)}
        outcomes = await log.admin.reassign_partitions(targets)
        assert [(each.topic, each.partition) for each in outcomes] == list(targets)
        assert [len(request.partitions) for request in broker.asked] == [1_000, 1_000, 500]

    with_broker(work)


def test_many_topics_are_described_in_several_requests() -> None:
    async def work(broker: Broker, log: AsyncLog) -> None:
        broker.topics = {"a": 1_500, "b": 1_500, "c": 1, "gone": 0}
        found = await log.admin.describe_topics()
        assert [(each.name, len(each.partitions)) for each in found] == [
            ("a", 1_500),
            ("b", 1_500),
            ("c", 1),
        ]
        assert broker.asked == [["a", "b"], ["c", "gone"]], "topics deleted in between are left out"
        assert [each.name for each in await log.admin.describe_topics(["c", "c"])] == ["c"]
        with pytest.raises(UnknownTopicOrPartition):
            await log.admin.describe_topics(["none"])
        assert await log.admin.describe_topics([]) == []

    with_broker(work)


def test_response_about_other_partitions_counts_as_none() -> None:
    async def work(broker: Broker, log: AsyncLog) -> None:
        broker.topics = {"t": 1}
        (found,) = await log.admin.describe_replicas([PLACE])
        assert isinstance(found.error, UnknownServerError)
        with pytest.raises(UnknownTopicOrPartition):
            await log.admin.describe_replicas([("t", 7)])

    with_broker(work)


NAME: Any = "t"  # a topic where a partition is expected
CALLS: list[tuple[Callable[[AsyncAdmin], Coroutine[Any, Any, Any]], type[QuorumlogError], str]] = [
    (lambda a: a.create_topic("t", assignments=[[]]), InvalidReplicaAssignment, "list of node ids"),
    (
        lambda a: a.create_topic("t", assignments=["12"]),  # type: ignore[list-item]
        InvalidReplicaAssignment,
        "list of node ids",
    ),
    (
        lambda a: a.create_topic("t", partitions=2, assignments=[[1]]),
        InvalidReplicaAssignment,
        "remove both",
    ),
    (lambda a: a.create_partitions("t", 0), InvalidPartitions, "give 1 or more"),
    (
        lambda a: a.create_partitions("t", 3, assignments=[[1, -1]]),
        InvalidReplicaAssignment,
        "list of node ids",
    ),
    (lambda a: a.reassign_partitions({("t", -1): [1]}), InvalidRequest, "partition is -1"),
    (lambda a: a.elect_leaders(unclean=True), InvalidRequest, "name each partition"),
    (lambda a: a.elect_leaders(NAME), InvalidRequest, "not a list of partitions: give"),
    (lambda a: a.describe_replicas([NAME]), InvalidRequest, "not a partition: give"),
    (lambda a: a.cancel_reassignments((NAME, NAME)), InvalidRequest, "not a partition: give"),
    (lambda a: a.delete_offsets("g", [("t", -1)]), InvalidRequest, "give a number >= 0"),
    (lambda a: a.list_reassignments("t"), InvalidRequest, "give a list of names"),
    (lambda a: a.describe_topics("t"), InvalidRequest, "give a list of names"),
    (lambda a: a.alter_cluster_configs(), InvalidConfig, "nothing to change"),
    (lambda a: a.update_features({"f": -1}), InvalidRequest, "give a number, 0 or more"),
    (lambda a: a.unregister_broker(-1), InvalidRequest, "give a node id"),
    (lambda a: a.describe_configs("t", cluster=True), InvalidRequest, "give one of them"),
]


@pytest.mark.parametrize(("call", "kind", "why"), CALLS)
def test_invalid_arguments_are_refused_by_the_client(
    call: Callable[[AsyncAdmin], Coroutine[Any, Any, Any]], kind: type[QuorumlogError], why: str
) -> None:
    async def work(broker: Broker, log: AsyncLog) -> None:
        async with asyncio.timeout(5):
            with pytest.raises(kind, match=why):
                await call(log.admin)

    with_broker(work)


def test_both_clients_have_the_same_calls_with_the_same_arguments() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        return {
            name: [str(each) for each in inspect.signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if not name.startswith("_") and callable(method)
        }

    assert calls(Admin) == calls(AsyncAdmin)
