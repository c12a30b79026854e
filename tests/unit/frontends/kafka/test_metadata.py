"""Metadata: brokers, topics and their leaders, in every version."""

from typing import Any

import pytest
from tests.kit.kafka_client import connected
from tests.kit.kafka_node import KafkaNode, run_on_kafka_node, serving_kafka
from tests.kit.node import WAIT_MS, Run

from quorumlog.errors import AddressInUse
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime, real
from quorumlog.services import ADMIN_CREATE_TOPIC

METADATA = 3
NODE = 1  # the id of the only node
UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE = 3, 5
INVALID_TOPIC, INVALID_REPLICATION_FACTOR, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 17, 38, 42, 100
NOT_ASKED = -(2**31)


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


async def created(kafka: KafkaNode, name: str, *, partitions: int = 1) -> bytes:
    request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
    answer = await kafka.channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
    assert answer.usable
    return bytes(answer.topic.topic_id)


async def asked(
    kafka: KafkaNode, *names: str, version: int = 13, may_create: bool = False, **fields: Any
) -> Any:
    topics = [{"name": name, "topic_id": bytes(16)} for name in names]
    return await kafka.client.ask(
        METADATA,
        version,
        **{
            "topics": topics,
            "allow_auto_topic_creation": may_create,
            **({"include_cluster_authorized_operations": False} if version in range(8, 11) else {}),
            "include_topic_authorized_operations": False,
            **fields,
        },
    )


@pytest.mark.long
@pytest.mark.parametrize("version", range(14))
def test_every_version_returns_brokers_and_leaders(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await created(kafka, "t", partitions=2)
            answer = await asked(kafka, "t", version=version)
            host, _, port = kafka.address.rpartition(":")
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port) == (NODE, host, int(port))
            (topic,) = answer.topics
            assert (topic.name, topic.error_code) == ("t", 0)
            assert [each.partition_index for each in topic.partitions] == [0, 1]
            assert {each.leader_id for each in topic.partitions} == {NODE}
            assert {(each.replica_nodes, each.isr_nodes) for each in topic.partitions} == {
                ((NODE,), (NODE,))
            }
            if version >= 1:
                assert answer.controller_id == NODE
            if version >= 2:
                assert len(answer.cluster_id) == 22
            if version >= 7:
                assert topic.partitions[0].leader_epoch == 0
            if version >= 10:
                assert topic.topic_id.bytes == topic_id

    run(main)


@pytest.mark.parametrize("version", [12, 13])
def test_name_beside_an_id_is_ignored(folder: str, version: int) -> None:
    """A topic is in the response once, whatever names its id comes with, and none is created."""

    async def main(kafka: KafkaNode) -> None:
        topic_id = await created(kafka, "t")
        named = [{"name": name, "topic_id": topic_id} for name in ("a", "b", None)]
        answer = await asked(kafka, version=version, may_create=True, topics=named)
        assert codes(answer) == {"t": 0}
        assert len(answer.topics) == 1
        every = await asked(kafka, version=version, topics=None)
        assert codes(every) == {"t": 0}

    run_on_kafka_node(main, folder)


def codes(answer: Any) -> dict[str, int]:
    return {topic.name: int(topic.error_code) for topic in answer.topics}


@pytest.mark.parametrize(("version", "every"), [(0, ()), (1, None), (13, None)])
def test_request_without_topics_returns_all(
    folder: str, version: int, every: tuple[()] | None
) -> None:
    async def main(kafka: KafkaNode) -> None:
        await created(kafka, "b")
        await created(kafka, "a")
        answer = await asked(kafka, version=version, topics=every)
        assert codes(answer) == {"a": 0, "b": 0}

    run_on_kafka_node(main, folder)


def test_empty_list_of_topics_returns_brokers_only(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await created(kafka, "t")
        answer = await asked(kafka, version=1, topics=())
        assert (len(answer.brokers), codes(answer)) == (1, {})

    run_on_kafka_node(main, folder)


def test_topic_requested_twice_is_returned_once(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await created(kafka, "t")
        assert len((await asked(kafka, "t", "t")).topics) == 1

    run_on_kafka_node(main, folder)


def test_an_unknown_topic_is_created_and_usable_at_once(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        (topic,) = (await asked(kafka, "new", may_create=True)).topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == ("new", 0, 3)
        assert {each.leader_id for each in topic.partitions} == {NODE}

    run_on_kafka_node(main, folder, num_partitions=3)


def test_versions_without_the_flag_create_topics(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await asked(kafka, "new", version=3)
        assert codes(answer) == {"new": 0}

    run_on_kafka_node(main, folder)


def test_request_without_auto_creation_creates_nothing(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await asked(kafka, "new", version=4)
        assert codes(answer) == {"new": UNKNOWN_TOPIC_OR_PARTITION}
        assert codes(await asked(kafka, topics=None)) == {}

    run_on_kafka_node(main, folder)


def test_disabled_auto_creation_creates_nothing(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await asked(kafka, "new", may_create=True)
        assert codes(answer) == {"new": UNKNOWN_TOPIC_OR_PARTITION}

    run_on_kafka_node(main, folder, auto_create_topics_enable="false")


def test_topic_that_cannot_be_created_has_an_error_in_its_place(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await created(kafka, "a.b")
        answer = await asked(kafka, "a.b", "not/legal", "", "a_b", may_create=True)
        assert codes(answer) == {
            "a.b": 0,
            "not/legal": INVALID_TOPIC,
            "": INVALID_TOPIC,
            "a_b": INVALID_TOPIC,
        }

    run_on_kafka_node(main, folder)


def test_too_few_brokers_for_the_default_replication_factor_is_reported(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await asked(kafka, "new", may_create=True)
        assert codes(answer) == {"new": INVALID_REPLICATION_FACTOR}

    run_on_kafka_node(main, folder, default_replication_factor=3)


def test_many_clients_may_create_one_topic_at_once(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        others = [await kafka.connect() for _ in range(5)]
        for other in others:
            other.send(
                METADATA,
                8,
                topics=({"name": "new"},),
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        answers = [(await other.answer(METADATA, 8))[1] for other in others]
        assert {code for answer in answers for code in codes(answer).values()} <= {
            0,
            LEADER_NOT_AVAILABLE,
        }
        assert codes(await asked(kafka, "new")) == {"new": 0}

    run_on_kafka_node(main, folder)


def test_a_topic_is_found_by_its_id(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        topic_id = await created(kafka, "t")
        answer = await asked(kafka, version=12, topics=({"name": None, "topic_id": topic_id},))
        (topic,) = answer.topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == ("t", 0, 1)

    run_on_kafka_node(main, folder)


def test_unknown_id_has_an_error_in_its_place(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        unknown = bytes(15) + b"\x09"
        answer = await asked(kafka, version=12, topics=({"name": None, "topic_id": unknown},))
        (topic,) = answer.topics
        assert (topic.name, topic.error_code) == (None, UNKNOWN_TOPIC_ID)
        assert topic.topic_id.bytes == unknown

    run_on_kafka_node(main, folder)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_cannot_look_up_ids_refuse_them(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode) -> None:
        topic_id = await created(kafka, "t")
        topics = ({"name": None, "topic_id": topic_id},)
        answer = await asked(kafka, version=version, topics=topics)
        assert codes(answer) == {"": INVALID_REQUEST}

    run_on_kafka_node(main, folder)


def test_a_topic_without_name_and_id_is_refused(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await asked(kafka, topics=({"name": None, "topic_id": bytes(16)},))
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            (None, INVALID_REQUEST)
        ]

    run_on_kafka_node(main, folder)


def test_authorized_operations_are_returned_on_request(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await created(kafka, "t")
        answer = await asked(kafka, "t", version=8)
        assert answer.cluster_authorized_operations == NOT_ASKED
        assert answer.topics[0].topic_authorized_operations == NOT_ASKED
        answer = await asked(
            kafka,
            "t",
            version=8,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        assert answer.cluster_authorized_operations == bits(5, 7, 8, 9, 10, 11, 12)
        assert answer.topics[0].topic_authorized_operations == bits(3, 4, 5, 6, 7, 8, 10, 11)

    run_on_kafka_node(main, folder)


def test_listener_on_all_interfaces_has_the_host_that_the_client_used(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime, folder, allow_insecure_listeners=True, listeners_kafka=("0.0.0.0:0",)
        ) as kafka:
            port = int(kafka.address.rpartition(":")[2])
            for host in ("127.0.0.1", "127.0.0.2"):
                async with connected(runtime, f"{host}:{port}") as client:
                    answer = await client.ask(METADATA, 1, topics=())
                    assert [(each.host, each.port) for each in answer.brokers] == [(host, port)]

    real.run(main)


def test_dual_stack_listener_has_the_host_that_the_client_used(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        try:
            async with serving_kafka(
                runtime, folder, allow_insecure_listeners=True, listeners_kafka=("[::]:0",)
            ) as kafka:
                port = int(kafka.address.rpartition(":")[2])
                for dialled, host in (("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")):
                    async with connected(runtime, f"{dialled}:{port}") as client:
                        answer = await client.ask(METADATA, 1, topics=())
                        assert [(each.host, each.port) for each in answer.brokers] == [(host, port)]
        except OSError:
            pytest.skip("this machine has no IPv6")

    real.run(main)


def test_port_in_use_is_reported_and_open_listeners_close(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, f"{folder}-1") as first:
            listeners = ("127.0.0.1:0", f"OUT://{first.address}")
            with pytest.raises(AddressInUse, match=r"Kafka listener OUT\); choose another port"):
                async with serving_kafka(runtime, f"{folder}-2", listeners_kafka=listeners):
                    pass

    run(main)


def test_each_listener_returns_its_own_addresses(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        listeners = {}
        for name, address in kafka.node.addresses.kafka_listeners.items():
            async with connected(kafka.runtime, address) as client:
                answer = await client.ask(METADATA, 1, topics=())
                (broker,) = answer.brokers
                listeners[name] = f"{broker.host}:{broker.port}"
        assert listeners["IN"] == kafka.node.addresses.kafka_listeners["IN"]
        assert listeners["OUT"] == "broker.example.net:19092"

    run_on_kafka_node(
        main,
        folder,
        listeners_kafka=("IN://127.0.0.1:0", "OUT://127.0.0.1:0"),
        advertised_kafka=("OUT://broker.example.net:19092",),
    )
