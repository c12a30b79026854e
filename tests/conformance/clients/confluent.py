"""The driver of confluent-kafka, the Python package of librdkafka."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as ConfluentTopic
from tests.kit.client_security import ClientSecurity

from ..driving import (
    HEARTBEAT_MS,
    WITHIN_S,
    Acks,
    Brokers,
    Codec,
    Delivered,
    Found,
    GroupProtocol,
    NewTopic,
    Place,
    Refused,
    Replicas,
    Sent,
    Starts,
)

POLLED_MAX: Final = 5000
NO_OFFSET: Final = -1001  # OFFSET_INVALID of librdkafka: unknown


@contextmanager
def refusals() -> Iterator[None]:
    """Convert the client's errors into Refused."""
    try:
        yield
    except KafkaException as error:
        raise refused(error.args[0]) from error


def refused(error: KafkaError) -> Refused:
    """Return the Refused of an error of librdkafka."""
    return Refused(error.code(), error.str())


class Confluent:
    """A `Driver`."""

    name = "confluent-kafka"
    cannot: Mapping[str, str] = {"admin.reassign": "it has no call for that"}

    def __init__(self, bootstrap: str, security: ClientSecurity | None = None) -> None:
        self._bootstrap = bootstrap
        self._security = {} if security is None else security.librdkafka()
        self.version = (
            f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
        )

    @contextmanager
    def writer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> Iterator["ConfluentWriter"]:
        settings = {
            **self._settings(),
            "acks": acks,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": linger_ms,
            "partitioner": "murmur2_random",  # as the others choose
            "message.max.bytes": 8_000_000,  # the broker must reject it, not the client
            "delivery.timeout.ms": int(WITHIN_S * 1000),
        }
        producer = Producer(settings)
        try:
            yield ConfluentWriter(producer)
        finally:
            producer.flush(WITHIN_S)

    @contextmanager
    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> Iterator["ConfluentTransactionalWriter"]:
        producer = Producer(
            {
                **self._settings(),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 5,
            }
        )
        with refusals():
            producer.init_transactions(WITHIN_S)
        try:
            yield ConfluentTransactionalWriter(producer)
        finally:
            producer.purge()
            with suppress(KafkaException):  # of a fenced producer
                producer.flush(WITHIN_S)

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Starts,
        *,
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        is_committed: bool = False,
    ) -> Iterator["ConfluentReader"]:
        settings = {
            **self._settings(),
            "group.id": "conformance",  # required; the client neither joins nor commits
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": wait_ms,
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
        }
        if fetch_bytes is not None:
            settings |= {"fetch.max.bytes": 4_000_000, "fetch.message.max.bytes": fetch_bytes}
        consumer = Consumer(settings)
        try:
            reader = ConfluentReader(consumer, topic)
            consumer.assign(
                [TopicPartition(topic, at, reader.place(at, to)) for at, to in starts.items()]
            )
            yield reader
        finally:
            consumer.close()

    @contextmanager
    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> Iterator["ConfluentMember"]:
        settings = {
            **self._settings(),
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":  # for the other one the broker sets the interval
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        consumer = Consumer(settings)
        try:
            consumer.subscribe([topic])
            yield ConfluentMember(consumer, topic)
        finally:
            consumer.close()

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        consumer = Consumer({**self._settings(), "group.id": "conformance"})
        with refusals():
            try:
                if isinstance(at, str):
                    low, high = consumer.get_watermark_offsets(
                        TopicPartition(topic, partition), timeout=WITHIN_S
                    )
                    return low if at == "beginning" else high
                (found,) = consumer.offsets_for_times(
                    [TopicPartition(topic, partition, at)], timeout=WITHIN_S
                )
                return found.offset
            finally:
                consumer.close()

    @contextmanager
    def admin(self) -> Iterator["ConfluentAdmin"]:
        yield ConfluentAdmin(AdminClient(self._settings()))

    def _settings(self) -> dict[str, Any]:
        return {
            **self._security,
            "bootstrap.servers": self._bootstrap,
            "client.id": "conformance",
            "log_level": 2,  # without the refused connections while a broker is down
            "topic.metadata.refresh.interval.ms": 10_000,
        }


class ConfluentWriter:
    """A `Writer`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        outcomes: list[tuple[KafkaError | None, Message]] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            outcomes.append((error, message))

        for record in records:
            self._produce(topic, record, on_delivery)
        left = self._producer.flush(WITHIN_S)
        assert left == 0, f"{left} of {len(records)} records have no outcome"
        for error, _ in outcomes:
            if error is not None:
                raise refused(error)
        return [_delivered(message) for _, message in outcomes]

    def _produce(self, topic: str, record: Sent, on_delivery: Any) -> None:
        options: dict[str, Any] = {}
        if record.partition is not None:
            options["partition"] = record.partition
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        if record.headers:
            options["headers"] = list(record.headers)
        while True:
            try:
                self._producer.produce(
                    topic, record.value, record.key, on_delivery=on_delivery, **options
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            except KafkaException as error:
                raise refused(error.args[0]) from error
            self._producer.poll(0)
            return


class ConfluentTransactionalWriter(ConfluentWriter):
    """A `TransactionalWriter`."""

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> None:
        places = [TopicPartition(topic, partition, to) for partition, to in offsets.items()]
        with refusals():
            self._producer.send_offsets_to_transaction(places, member.metadata(), WITHIN_S)

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction(WITHIN_S)

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction(WITHIN_S)


def _delivered(message: Message) -> Delivered:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    is_known = offset is not None and offset != NO_OFFSET
    return Delivered(partition=partition, offset=offset if is_known else None)


class ConfluentReader:
    """A `Reader`."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def place(self, partition: int, to: Place) -> int:
        """Return the next position; the end is looked up now, not by the next poll."""
        if to == "beginning":
            return OFFSET_BEGINNING
        if to == "end":
            where = TopicPartition(self._topic, partition)
            return self._consumer.get_watermark_offsets(where, timeout=WITHIN_S)[1]
        return to

    def seek(self, partition: int, to: Place) -> None:
        with refusals():
            place = self.place(partition, to)
            self._consumer.seek(TopicPartition(self._topic, partition, place))

    def pause(self, partition: int) -> None:
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([TopicPartition(self._topic, partition)])

    def poll(self, within_s: float) -> list[Found]:
        found: list[Found] = []
        while len(found) < POLLED_MAX:
            message = self._consumer.poll(0 if found else within_s)
            if message is None:
                break
            error = message.error()
            if error is not None:
                raise refused(error)
            found.append(_found(message))
        return found


class ConfluentMember(ConfluentReader):
    """A `Member`."""

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        with refusals():
            self._consumer.commit(asynchronous=False)

    def metadata(self) -> Any:
        """Return its membership, which fences a transaction's offsets."""
        return self._consumer.consumer_group_metadata()


def _found(message: Message) -> Found:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Found(
        partition=partition,
        offset=offset,
        value=message.value(),
        key=message.key(),
        headers=tuple(_header(*each) for each in message.headers() or ()),
        timestamp_ms=message.timestamp()[1],
    )


def _header(name: str, value: str | bytes | None) -> tuple[str, bytes | None]:
    return name, value.encode() if isinstance(value, str) else value


class ConfluentAdmin:
    """An `Admin`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        new = ConfluentTopic(
            topic.name,
            num_partitions=len(topic.assignments) or topic.partitions,
            **(
                {"replica_assignment": [list(each) for each in topic.assignments]}
                if topic.assignments
                else {"replication_factor": topic.replication}
            ),
            config=dict(topic.configs),
        )
        _wait(self._client.create_topics([new], validate_only=validate_only))

    def delete(self, topic: str) -> None:
        _wait(self._client.delete_topics([topic]))

    def topics(self) -> set[str]:
        with refusals():
            return set(self._client.list_topics(timeout=WITHIN_S).topics)

    def describe(self, topic: str) -> dict[int, Replicas]:
        with refusals():
            found = self._client.list_topics(topic, timeout=WITHIN_S).topics[topic]
        if found.error is not None:
            raise refused(found.error)
        return {
            number: Replicas(
                leader=each.leader, replicas=tuple(each.replicas), isr=tuple(each.isrs)
            )
            for number, each in found.partitions.items()
        }

    def brokers(self) -> Brokers:
        with refusals():
            found = self._client.describe_cluster().result(WITHIN_S)
            seen = self._client.list_topics(timeout=WITHIN_S)
        assert {node.id for node in found.nodes} == set(seen.brokers)
        return Brokers(
            cluster_id=found.cluster_id,
            controller=found.controller.id,
            addresses={node.id: f"{node.host}:{node.port}" for node in found.nodes},
        )

    def grow(self, topic: str, partitions: int) -> None:
        _wait(self._client.create_partitions([NewPartitions(topic, partitions)]))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        wanted = [TopicPartition(topic, at, offset) for at, offset in before.items()]
        _wait(self._client.delete_records(wanted))

    def configs(self, topic: str) -> dict[str, str | None]:
        wanted = ConfigResource(ResourceType.TOPIC, topic)
        (found,) = _wait(self._client.describe_configs([wanted]))
        return {name: entry.value for name, entry in found.items()}

    def alter_configs(self, topic: str, values: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait(self._client.incremental_alter_configs([wanted]))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        raise AssertionError("excluded")

    def elect_preferred(self, topic: str, partition: int) -> None:
        wanted = [TopicPartition(topic, partition)]
        with refusals():
            found = self._client.elect_leaders(ElectionType.PREFERRED, wanted).result(WITHIN_S)
        for error in found.values():
            if error is not None:
                raise refused(error)


def _wait(futures: Mapping[Any, "Future[Any]"]) -> list[Any]:
    with refusals():
        return [future.result(WITHIN_S) for future in futures.values()]
