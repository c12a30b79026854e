"""Operations called with plain values: validation comes first; changes need a controller."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quorumlog.api import validation
from quorumlog.api.authorizer import Authorizer
from quorumlog.api.cluster import ClusterAdmin
from quorumlog.api.configs import ConfigAdmin, ConfigResource, ConfigSource, ResourceType
from quorumlog.api.metadata_access import MetadataAccess
from quorumlog.api.quotas import ALTERATIONS_MAX, QuotaAdmin
from quorumlog.api.request_context import RequestContext
from quorumlog.api.topics import TopicAdmin
from quorumlog.errors import (
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    NotController,
    QuorumlogError,
    StaleMetadata,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_NODE, ClusterId, NodeId, TopicId
from quorumlog.metadata import (
    AlterClientQuotas,
    AlterConfigs,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    QuotaAlteration,
    UnregisterBroker,
    UpdateFeatures,
)
from quorumlog.metadata.client_quotas import EntityFilter
from quorumlog.metadata.shell import MetadataPublisher, MetadataStateMachine
from quorumlog.runtime import Runtime
from quorumlog.runtime.real import RealClock
from quorumlog.simulation import run

LEFT_MS = 1_000


def open_to_all(metadata: MetadataAccess) -> Authorizer:
    """Return an authorizer that allows every action."""
    return Authorizer(lambda: metadata.image)


def call(operation: Callable[[MetadataAccess, RequestContext], Awaitable[Any]]) -> Any:
    """Return the result of an operation on a broker without metadata and without a session."""
    results: list[Any] = []

    async def main(runtime: Runtime) -> None:
        metadata = MetadataAccess(runtime.clock, MetadataPublisher(MetadataStateMachine()))
        context = RequestContext(runtime.clock.now_ms() + LEFT_MS, min_metadata_offset=-1)
        results.append(await operation(metadata, context))

    run(main)
    return results[0]


CHANGES: dict[str, Callable[[MetadataAccess, RequestContext], Awaitable[Any]]] = {
    "create": lambda m, c: TopicAdmin(m, open_to_all(m)).create(CreateTopic(name="t"), c),
    "delete": lambda m, c: TopicAdmin(m, open_to_all(m)).delete(DeleteTopic(name="t"), c),
    "grow": lambda m, c: TopicAdmin(m, open_to_all(m)).create_partitions(
        CreatePartitions(topic="t", count=2), c
    ),
}


@pytest.mark.parametrize("operation", CHANGES.values(), ids=CHANGES)
def test_a_valid_change_without_a_session_has_no_controller(
    operation: Callable[[MetadataAccess, RequestContext], Awaitable[Any]],
) -> None:
    with pytest.raises(NotController, match="starting"):
        call(operation)


def quotas(m: MetadataAccess, c: RequestContext, alteration: QuotaAlteration, count: int) -> Any:
    return QuotaAdmin(m, open_to_all(m)).alter(
        AlterClientQuotas(alterations=(alteration,) * count), c
    )


def configs(m: MetadataAccess) -> ConfigAdmin:
    return ConfigAdmin(m, open_to_all(m), node_id=NodeId(1), settings=())


ONE = QuotaAlteration(entity=(("user", "a"),), changes=())
INVALID: dict[str, tuple[type[QuorumlogError], Callable[..., Awaitable[Any]]]] = {
    "name": (
        InvalidTopic,
        lambda m, c: TopicAdmin(m, open_to_all(m)).create(CreateTopic(name="a b"), c),
    ),
    "topic id": (
        InvalidRequest,
        lambda m, c: TopicAdmin(m, open_to_all(m)).create(
            CreateTopic(name="t", topic_id=TopicId(b"short")), c
        ),
    ),
    "assignment": (
        InvalidReplicaAssignment,
        lambda m, c: TopicAdmin(m, open_to_all(m)).create(
            CreateTopic(name="t", assignments=((NodeId(1), NodeId(1)),)), c
        ),
    ),
    "no topic": (
        InvalidRequest,
        lambda m, c: TopicAdmin(m, open_to_all(m)).delete(DeleteTopic(), c),
    ),
    "count": (
        InvalidRequest,
        lambda m, c: TopicAdmin(m, open_to_all(m)).create_partitions(
            CreatePartitions(topic="t", count=0), c
        ),
    ),
    "no changes": (
        InvalidRequest,
        lambda m, c: configs(m).alter_topic(AlterConfigs(topic="t", changes=()), c),
    ),
    "no alterations": (InvalidRequest, lambda m, c: quotas(m, c, ONE, 0)),
    "many alterations": (InvalidRequest, lambda m, c: quotas(m, c, ONE, ALTERATIONS_MAX + 1)),
    "filter": (
        InvalidRequest,
        lambda m, c: QuotaAdmin(m, open_to_all(m)).describe(
            [EntityFilter(type="ip")], c, strict=False
        ),
    ),
    "features": (
        InvalidRequest,
        lambda m, c: cluster(m).update_features(UpdateFeatures(updates=()), c),
    ),
    "broker": (
        InvalidRequest,
        lambda m, c: cluster(m).unregister_broker(UnregisterBroker(broker_id=NodeId(-1)), c),
    ),
    "names": (InvalidRequest, lambda m, c: TopicAdmin(m, open_to_all(m)).describe([], c)),
}


def cluster(m: MetadataAccess) -> ClusterAdmin:
    return ClusterAdmin(
        RealClock(asyncio.get_running_loop()), m, open_to_all(m), cluster_id=ClusterId("c")
    )


@pytest.mark.parametrize(("error", "operation"), INVALID.values(), ids=INVALID)
def test_invalid_arguments_fail_before_the_lookup_of_a_controller(
    error: type[QuorumlogError], operation: Callable[..., Awaitable[Any]]
) -> None:
    with pytest.raises(error):
        call(operation)


def test_a_broker_without_metadata_describes_an_empty_cluster() -> None:
    described = call(lambda m, c: cluster(m).describe(c))
    assert (described.cluster_id, described.controller_id) == ("c", NO_NODE)
    assert described.brokers == ()


def test_a_read_waits_for_the_metadata_that_it_requires_until_its_deadline() -> None:
    async def read(m: MetadataAccess, c: RequestContext) -> Any:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()  # virtual
        with pytest.raises(StaleMetadata, match="not 5"):
            await TopicAdmin(m, open_to_all(m)).list_topics(
                RequestContext(c.deadline_ms, min_metadata_offset=5)
            )
        return round(1_000 * (loop.time() - begin_s))

    assert call(read) == LEFT_MS


def test_each_described_resource_has_its_configs_or_its_error() -> None:
    resources = [
        ConfigResource(type=ResourceType.CLUSTER),
        ConfigResource(type=ResourceType.TOPIC, topic="t"),
        ConfigResource(type=ResourceType.BROKER, broker=2),
    ]
    described, offset = call(lambda m, c: configs(m).describe(resources, c))
    assert offset == -1
    assert [each.resource for each in described] == resources
    assert {config.source for config in described[0].configs} == {ConfigSource.DEFAULT}
    assert isinstance(described[1].error, UnknownTopicOrPartition)
    assert isinstance(described[2].error, InvalidRequest)


def test_duplicate_and_too_many_partitions_are_refused() -> None:
    validation.check_places("partitions", [("t", 0), ("t", 1)])
    for places in ([], [("t", 0)] * 2, [("t", n) for n in range(validation.PARTITIONS_MAX + 1)]):
        with pytest.raises(InvalidRequest):
            validation.check_places("partitions", places)


def test_waits_end_before_the_deadline() -> None:
    assert validation.left_ms(100, 40) == 60
    assert validation.left_ms(100, 200) == 1
    assert validation.left_ms(10**9, 0) == validation.TIMEOUT_MS_MAX
    assert validation.wait_within(500, 1_000, 0) == 500
    assert validation.wait_within(500, 100, 0) == 100 - validation.ANSWER_MS
    assert validation.wait_within(500, 0, 10) == 0
