"""The secure broker of `quorumlog.testing`, as tests of other projects use it."""

import pytest
from confluent_kafka import KafkaError, Producer

import quorumlog
from quorumlog.testing import Broker, Cluster


def send(config: dict[str, str], topic: str) -> KafkaError | None:
    """Produce one record; return its error."""
    errors: list[KafkaError | None] = []
    producer = Producer(config)
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert not producer.flush(60)
    return errors[0]


@pytest.mark.long
def test_tests_get_a_broker_with_users_and_acls() -> None:
    with Broker(secure=True) as broker:
        topic = broker.create_topic()
        with broker.connect() as admin:
            admin.admin.set_password("alice", "secret")
            config = broker.kafka_config("alice", "secret")
            denied = send(config, topic)
            assert denied is not None
            assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            acl = quorumlog.Acl(
                principal="User:alice", operation="Write", resource_type="Topic", resource=topic
            )
            admin.admin.create_acls([acl])
            assert send(config, topic) is None
        broker.kill()
        broker.start()
        with broker.connect() as admin:
            assert [user.name for user in admin.admin.describe_users()] == ["admin", "alice"]
            assert [each.value for each in admin.consumer(topic, until_end=True)] == [b"value"]


@pytest.mark.long
def test_tests_get_a_cluster_with_users_and_acls_that_survives_a_node() -> None:
    with Cluster(secure=True) as cluster:
        topic = cluster.create_topic()
        with cluster.connect() as admin:
            admin.admin.set_password("alice", "secret")
            config = cluster.kafka_config("alice", "secret")
            denied = send(config, topic)
            assert denied is not None
            assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            acls = [
                quorumlog.Acl(
                    principal="User:alice", operation="All", resource_type=kind, resource=name
                )
                for kind, name in (("Topic", topic), ("Group", "readers"))
            ]
            admin.admin.create_acls(acls)
            assert send(config, topic) is None
            cluster.kill(cluster.leader(topic))
            assert send(config, topic) is None
            cluster.restore()
            alice = quorumlog.SCRAM(user="alice", password="secret")
            with (
                cluster.connect(credentials=alice) as log,
                log.group_consumer("readers", [topic]) as consumer,
            ):
                assert [next(consumer).value for _ in range(2)] == [b"value", b"value"]
                consumer.commit()
                assert len(log.admin.describe_group("readers").members) == 1
