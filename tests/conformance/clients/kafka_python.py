"""The driver of kafka-python: plain Python, with the newest version of every API key."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

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

with warnings.catch_warnings():  # its schemas use a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

ACKS: Final[Mapping[str, int | str]] = {"0": 0, "1": 1, "all": "all"}
WITHIN_MS: Final = int(WITHIN_S * 1000)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert the client's errors into Refused."""
    try:
        yield
    except KafkaError as error:
        raise Refused(getattr(error, "errno", -1), repr(error)) from error


class KafkaPython:
    """A `Driver`."""

    name = "kafka-python"
    version: str = kafka.__version__
    cannot: Mapping[str, str] = {
        "headers.null": "it takes none",
        "groups.consumer": "it speaks the classic protocol alone",
    }

    def __init__(self, bootstrap: str, security: ClientSecurity | None = None) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "client_id": "conformance",
        }
        if security is not None:
            self._settings |= {**security.python(), "ssl_cafile": security.ca}

    @contextmanager
    def writer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> Iterator["KafkaPythonWriter"]:
        producer = KafkaProducer(
            **self._settings,
            acks=ACKS[acks],
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            delivery_timeout_ms=WITHIN_MS,
            request_timeout_ms=10_000,
            max_request_size=8_000_000,  # the broker must reject it, not the client
        )
        try:
            yield KafkaPythonWriter(producer)
        finally:
            producer.close(timeout=WITHIN_S)

    @contextmanager
    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> Iterator["KafkaPythonTransactionalWriter"]:
        producer = KafkaProducer(
            **self._settings,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            delivery_timeout_ms=WITHIN_MS,
            request_timeout_ms=10_000,
        )
        try:
            with refusals():
                producer.init_transactions()
            yield KafkaPythonTransactionalWriter(producer)
        finally:
            producer.close(timeout=WITHIN_S)

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Starts,
        *,
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        is_committed: bool = False,
    ) -> Iterator["KafkaPythonReader"]:
        settings: dict[str, Any] = {
            "auto_offset_reset": "none",
            "fetch_max_wait_ms": wait_ms,
            "isolation_level": "read_committed" if is_committed else "read_uncommitted",
        }
        if fetch_bytes is not None:
            settings |= {"fetch_max_bytes": fetch_bytes, "max_partition_fetch_bytes": fetch_bytes}
        consumer = KafkaConsumer(**self._settings, **settings, enable_auto_commit=False)
        try:
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            reader = KafkaPythonReader(consumer, topic)
            for partition, to in starts.items():
                reader.seek(partition, to)
            yield reader
        finally:
            consumer.close()

    @contextmanager
    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> Iterator["KafkaPythonMember"]:
        consumer = KafkaConsumer(
            topic,
            **self._settings,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        try:
            yield KafkaPythonMember(consumer, topic)
        finally:
            consumer.close()

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        consumer = KafkaConsumer(**self._settings)
        place = TopicPartition(topic, partition)
        with refusals():
            try:
                if at == "beginning":
                    found: int = consumer.beginning_offsets([place])[place]
                elif at == "end":
                    found = consumer.end_offsets([place])[place]
                else:
                    looked_up = consumer.offsets_for_times({place: at})[place]
                    found = -1 if looked_up is None else looked_up.offset
                return found
            finally:
                consumer.close()

    @contextmanager
    def admin(self) -> Iterator["KafkaPythonAdmin"]:
        client = KafkaAdminClient(**self._settings)
        try:
            yield KafkaPythonAdmin(client)
        finally:
            client.close()


class KafkaPythonWriter:
    """A `Writer`."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        with refusals():
            under_way = [
                self._producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            self._producer.flush(WITHIN_S)
            return [_delivered(future.get(WITHIN_S)) for future in under_way]


class KafkaPythonTransactionalWriter(KafkaPythonWriter):
    """A `TransactionalWriter`."""

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> None:
        places = {
            TopicPartition(topic, partition): OffsetAndMetadata(to, "", -1)
            for partition, to in offsets.items()
        }
        with refusals():
            self._producer.send_offsets_to_transaction(places, member.metadata())

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction()


def _delivered(response: Any) -> Delivered:
    return Delivered(
        partition=response.partition,
        offset=None if response.offset in (None, -1) else response.offset,
    )


class KafkaPythonReader:
    """A `Reader`."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def seek(self, partition: int, to: Place) -> None:
        place = TopicPartition(self._topic, partition)
        if to == "beginning":
            self._consumer.seek_to_beginning(place)
        elif to == "end":
            self._consumer.seek_to_end(place)
            self._consumer.position(place)  # looked up now, not by the first poll
        else:
            self._consumer.seek(place, to)

    def pause(self, partition: int) -> None:
        self._consumer.pause(TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(TopicPartition(self._topic, partition))

    def poll(self, within_s: float) -> list[Found]:
        with refusals():
            polled = self._consumer.poll(timeout_ms=int(within_s * 1000))
        return [_found(record) for records in polled.values() for record in records]


class KafkaPythonMember(KafkaPythonReader):
    """A `Member`."""

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        with refusals():
            self._consumer.commit()

    def metadata(self) -> Any:
        """Return its membership, which fences a transaction's offsets."""
        return self._consumer.group_metadata()


def _found(record: Any) -> Found:
    return Found(
        partition=record.partition,
        offset=record.offset,
        value=record.value,
        key=record.key,
        headers=tuple((name, value) for name, value in record.headers),
        timestamp_ms=record.timestamp,
    )


class KafkaPythonAdmin:
    """An `Admin`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        new: dict[str, Any] = {"configs": dict(topic.configs)}
        if topic.assignments:
            new["assignments"] = {at: list(each) for at, each in enumerate(topic.assignments)}
        else:
            new["num_partitions"] = topic.partitions
            new["replication_factor"] = topic.replication
        with refusals():
            self._client.create_topics({topic.name: new}, validate_only=validate_only)

    def delete(self, topic: str) -> None:
        with refusals():
            self._client.delete_topics([topic])

    def topics(self) -> set[str]:
        with refusals():
            return set(self._client.list_topics())

    def describe(self, topic: str) -> dict[int, Replicas]:
        with refusals():
            (found,) = self._client.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"], topic)
        return {
            each["partition_index"]: Replicas(
                leader=each["leader_id"],
                replicas=tuple(each["replica_nodes"]),
                isr=tuple(each["isr_nodes"]),
            )
            for each in found["partitions"]
        }

    def brokers(self) -> Brokers:
        with refusals():
            found = self._client.describe_cluster()
        return Brokers(
            cluster_id=found["cluster_id"],
            controller=found["controller_id"],
            addresses={
                each["broker_id"]: f"{each['host']}:{each['port']}"
                for each in found["brokers"]
                if not each["is_fenced"]  # the response has fenced brokers too
            },
        )

    def grow(self, topic: str, partitions: int) -> None:
        with refusals():
            self._client.create_partitions({topic: partitions})

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        with refusals():
            self._client.delete_records(
                {TopicPartition(topic, at): offset for at, offset in before.items()}
            )

    def configs(self, topic: str) -> dict[str, str | None]:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        with refusals():
            found = self._client.describe_configs([wanted], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def alter_configs(self, topic: str, values: Mapping[str, str]) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(values))
        with refusals():
            response = self._client.alter_configs([wanted], raise_on_unknown=False)["topic"][topic]
        if response != "OK":
            raise Refused(int(re.findall(r"-?\d+", response)[0]), response)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        with refusals():
            response = self._client.alter_partition_reassignments(
                {TopicPartition(topic, partition): list(replicas)}
            )
        for error in response.values():
            if error is not None:
                raise Refused(error.errno, topic)

    def elect_preferred(self, topic: str, partition: int) -> None:
        with refusals():
            self._client.elect_leaders(0, {topic: [partition]})
