"""Administration by each client, and the errors of invalid requests."""

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from .cluster import Cluster, ThreeNodes, until
from .driving import Driver, NewTopic, Refused, read
from .records import contents, numbered

pytestmark = [pytest.mark.slow, pytest.mark.needs("admin")]

MakeTopic = Callable[..., str]
UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
ELECTION_NOT_NEEDED = 84

numbers = itertools.count()


def fresh(client: Driver) -> str:
    return f"made.by.{client.name}.{next(numbers)}"


def test_brokers_are_described(client: Driver, cluster: Cluster) -> None:
    with client.admin() as admin:
        found = admin.brokers()
    assert found.addresses == cluster.addresses
    assert found.controller in cluster.addresses
    assert found.cluster_id


def test_a_topic_is_created_used_and_deleted(client: Driver, cluster: Cluster) -> None:
    name = fresh(client)
    with client.admin() as admin:
        admin.create(NewTopic(name=name, partitions=3, replication=cluster.replication))
        until("it is listed", lambda: name in admin.topics())
        described = admin.describe(name)
        assert sorted(described) == [0, 1, 2]
        for partition, found in described.items():
            assert found.leader == cluster.leader(name, partition)
            assert found.leader in found.replicas
            assert len(set(found.replicas)) == cluster.replication
            assert set(found.isr) == set(found.replicas)
        with client.writer() as writer:
            writer.send(name, numbered(10, partition=2))
        with client.reader(name, {2: "beginning"}) as reader:
            assert contents(read(reader, 10)) == contents(numbered(10))
        admin.delete(name)
        until("it is gone", lambda: name not in admin.topics())


def test_a_topic_takes_configs(client: Driver, cluster: Cluster) -> None:
    name = fresh(client)
    configs = {"retention.ms": "12345678", "cleanup.policy": "compact"}
    with client.admin() as admin:
        admin.create(NewTopic(name=name, replication=cluster.replication, configs=configs))
        until("it is listed", lambda: name in admin.topics())
        found = admin.configs(name)
    assert {key: found[key] for key in configs} == configs
    assert found["max.message.bytes"] == "1048588"


@pytest.mark.needs("admin.assignments")
def test_a_topic_has_the_requested_replicas(client: Driver, cluster: Cluster) -> None:
    name = fresh(client)
    brokers = sorted(cluster.addresses)
    assignments = [[one] for one in brokers] if len(brokers) < 3 else [brokers, brokers[::-1]]
    with client.admin() as admin:
        admin.create(NewTopic(name=name, assignments=assignments))
        found = admin.describe(name)
    assert [list(found[at].replicas) for at in sorted(found)] == assignments


@pytest.mark.needs("errors")
def test_invalid_topics_are_rejected(client: Driver, cluster: Cluster, topic: MakeTopic) -> None:
    with client.admin() as admin:
        for new, code in (
            (NewTopic(name=topic(), replication=cluster.replication), TOPIC_EXISTS),
            (NewTopic(name=fresh(client), replication=9), INVALID_REPLICATION_FACTOR),
            (NewTopic(name=fresh(client), partitions=0, replication=1), INVALID_PARTITIONS),
            (NewTopic(name="no/such name", replication=1), INVALID_TOPIC),
            (NewTopic(name=fresh(client), replication=1, configs={"x": "1"}), INVALID_CONFIG),
            (
                NewTopic(name=fresh(client), replication=1, configs={"retention.ms": "long"}),
                INVALID_CONFIG,
            ),
        ):
            with pytest.raises(Refused) as refused:
                admin.create(new)
            assert refused.value.code == code, new
            assert code == TOPIC_EXISTS or new.name not in admin.topics()


@pytest.mark.needs("errors")
def test_an_unknown_topic_cannot_be_deleted(client: Driver) -> None:
    with client.admin() as admin, pytest.raises(Refused) as refused:
        admin.delete("there.is.none")
    assert refused.value.code == UNKNOWN_TOPIC


@pytest.mark.needs("admin.validate")
def test_validate_only_creates_no_topic(client: Driver, cluster: Cluster) -> None:
    name = fresh(client)
    new = NewTopic(name=name, replication=cluster.replication)
    with client.admin() as admin:
        admin.create(new, validate_only=True)
        assert name not in admin.topics()
        if "errors" not in client.cannot:
            with pytest.raises(Refused) as refused:
                admin.create(NewTopic(name=name, replication=9), validate_only=True)
            assert refused.value.code == INVALID_REPLICATION_FACTOR
        admin.create(new)


@pytest.mark.needs("admin.partitions")
def test_a_topic_grows_and_never_shrinks(
    client: Driver, cluster: Cluster, topic: MakeTopic
) -> None:
    name = topic()
    with client.admin() as admin:
        admin.grow(name, 4)
        until("it has grown", lambda: len(admin.describe(name)) == 4)
        with client.writer() as writer:
            writer.send(name, numbered(5, partition=3))
        for count in (4, 2):
            with pytest.raises(Refused) as refused:
                admin.grow(name, count)
            assert refused.value.code == INVALID_PARTITIONS


@pytest.mark.needs("admin.configs")
def test_configs_are_altered_and_read_back(client: Driver, topic: MakeTopic) -> None:
    name = topic(retention_ms="1000000")
    with client.admin() as admin:
        admin.alter_configs(name, {"retention.bytes": "1234567", "retention.ms": "2000000"})

        def values() -> tuple[str | None, str | None]:
            found = admin.configs(name)
            return found["retention.bytes"], found["retention.ms"]

        until("they are as set", lambda: values() == ("1234567", "2000000"))
        with pytest.raises(Refused) as refused:
            admin.alter_configs(name, {"retention.bytes": "many"})
        assert refused.value.code == INVALID_CONFIG
        assert values() == ("1234567", "2000000")


@pytest.mark.needs("admin.delete_records")
def test_deleted_records_are_gone_for_all(client: Driver, topic: MakeTopic) -> None:
    name = topic(partitions=2)
    with client.writer() as writer:
        writer.send(name, [*numbered(50, partition=0), *numbered(50, partition=1)])
    with client.admin() as admin:
        admin.delete_records(name, {0: 20, 1: 50})
    assert [client.offset(name, at, "beginning") for at in (0, 1)] == [20, 50]
    with client.reader(name, {0: "beginning"}) as reader:
        assert [one.offset for one in read(reader, 30)] == list(range(20, 50))


@pytest.mark.needs("admin.reassign")
def test_a_partition_moves_while_it_is_used(client: Driver, cluster: Cluster) -> None:
    if not isinstance(cluster, ThreeNodes):
        pytest.skip("excluded: one node has no target for a reassignment")
    name = fresh(client)
    cluster.create(NewTopic(name=name, replication=1))
    there = cluster.leader(name, 0)
    other = min(set(cluster.addresses) - {there})
    with client.writer() as writer, client.admin() as admin:
        writer.send(name, numbered(100))
        admin.reassign(name, 0, [other])
        until("it has moved", lambda: admin.describe(name)[0].replicas == (other,))
        until("it is led there", lambda: admin.describe(name)[0].leader == other)
        writer.send(name, numbered(100, since=100))
    with client.reader(name, {0: "beginning"}) as reader:
        found = contents(read(reader, 200))
    # A producer that is not idempotent retries a rejected batch after the following ones.
    assert found[:100] == contents(numbered(100))
    assert Counter(found) == Counter(contents(numbered(200)))
    with client.admin() as admin:
        admin.delete(name)  # some clients require a leader of every topic, even if a broker is down


@pytest.mark.needs("admin.elect")
def test_a_preferred_leader_that_leads_needs_no_election(client: Driver, topic: MakeTopic) -> None:
    name = topic()
    with client.admin() as admin:
        code = 0
        try:
            admin.elect_preferred(name, 0)
        except Refused as refused:  # some clients treat it as a success
            code = refused.code
        assert code in (0, ELECTION_NOT_NEEDED)
        with pytest.raises(Refused) as unknown:
            admin.elect_preferred("there.is.none", 0)
        assert unknown.value.code == UNKNOWN_TOPIC
