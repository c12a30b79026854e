"""The driver of aiokafka: an asyncio client with protocol versions of some years ago."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.helpers import create_ssl_context
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

ACKS: Final[Mapping[str, int | str]] = {"0": 0, "1": 1, "all": "all"}
PRODUCER_FENCED: Final = 90
T = TypeVar("T")


class Loop:
    """Runs coroutines of a client in sequence; its tasks run only during such a call."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Raise Refused."""
        try:
            return self._runner.run(work)
        except ProducerFenced as error:  # aiokafka gives it no error code
            raise Refused(PRODUCER_FENCED, repr(error)) from error
        except KafkaError as error:
            raise Refused(getattr(error, "errno", -1), repr(error)) from error

    def close(self) -> None:
        """Close the loop."""
        self._runner.close()


@contextmanager
def opened(make: Callable[[], Any], stop: str = "stop") -> Iterator[tuple[Loop, Any]]:
    """Start a client of aiokafka in a loop of its own."""
    loop = Loop()
    try:
        with started(loop, make, stop) as client:
            yield loop, client
    finally:
        loop.close()


@contextmanager
def started(loop: Loop, make: Callable[[], Any], stop: str = "stop") -> Iterator[Any]:
    """Start a client in an existing loop."""

    async def start() -> Any:
        client = make()
        try:
            await client.start()
        except BaseException:
            await getattr(client, stop)()
            raise
        return client

    client = loop.run(start())
    try:
        yield client
    finally:
        loop.run(getattr(client, stop)())


class AioKafka:
    """A `Driver`."""

    name = "aiokafka"
    version: str = aiokafka.__version__
    cannot: Mapping[str, str] = {
        "admin.elect": "it has no call for that",
        "admin.isr": "it speaks no version of the metadata that it shows so",
        "admin.reassign": "it has no call for that",
        "groups.consumer": "it speaks the classic protocol alone",
    }

    def __init__(self, bootstrap: str, security: ClientSecurity | None = None) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "client_id": "conformance",
        }
        if security is not None:
            context = create_ssl_context(cafile=security.ca)
            self._settings |= {**security.python(), "ssl_context": context}
        self._members: list[Loop] = []  # of the open members; all are the same loop

    @contextmanager
    def writer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> Iterator["AioKafkaWriter"]:
        with opened(
            lambda: AIOKafkaProducer(
                **self._settings,
                acks=ACKS[acks],
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                request_timeout_ms=10_000,
                max_request_size=8_000_000,  # the broker must reject it, not the client
            )
        ) as (loop, producer):
            yield AioKafkaWriter(loop, producer)

    @contextmanager
    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> Iterator["AioKafkaTransactionalWriter"]:
        with opened(
            lambda: AIOKafkaProducer(
                **self._settings,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                request_timeout_ms=10_000,
            )
        ) as (loop, producer):
            yield AioKafkaTransactionalWriter(loop, producer)

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Starts,
        *,
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        is_committed: bool = False,
    ) -> Iterator["AioKafkaReader"]:
        settings: dict[str, Any] = {
            "auto_offset_reset": "none",
            "fetch_max_wait_ms": wait_ms,
            "isolation_level": "read_committed" if is_committed else "read_uncommitted",
        }
        if fetch_bytes is not None:
            settings |= {"fetch_max_bytes": fetch_bytes, "max_partition_fetch_bytes": fetch_bytes}
        with opened(
            lambda: AIOKafkaConsumer(**self._settings, **settings, enable_auto_commit=False)
        ) as (loop, consumer):
            reader = AioKafkaReader(loop, consumer, topic)
            reader.assign(starts)
            yield reader

    @contextmanager
    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> Iterator["AioKafkaMember"]:
        # Members of a group share a loop: otherwise one would wait for another that does not run.
        loop = self._members[0] if self._members else Loop()
        self._members.append(loop)
        try:
            with started(
                loop,
                lambda: AIOKafkaConsumer(
                    topic,
                    **self._settings,
                    group_id=group,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    heartbeat_interval_ms=HEARTBEAT_MS,
                ),
            ) as consumer:
                yield AioKafkaMember(loop, consumer, topic, group)
        finally:
            self._members.pop()
            if not self._members:
                loop.close()

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        place = TopicPartition(topic, partition)
        with opened(lambda: AIOKafkaConsumer(**self._settings)) as (loop, consumer):
            if at == "beginning":
                first: int = loop.run(consumer.beginning_offsets([place]))[place]
                return first
            if at == "end":
                last: int = loop.run(consumer.end_offsets([place]))[place]
                return last
            found = loop.run(consumer.offsets_for_times({place: at}))[place]
            return -1 if found is None else found.offset

    @contextmanager
    def admin(self) -> Iterator["AioKafkaAdmin"]:
        with opened(lambda: AIOKafkaAdminClient(**self._settings), "close") as (loop, client):
            yield AioKafkaAdmin(loop, client)


class AioKafkaWriter:
    """A `Writer`."""

    def __init__(self, loop: Loop, producer: Any) -> None:
        self._loop = loop
        self._producer = producer

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        return self._loop.run(self._send(topic, records))

    async def _send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        under_way = [
            await self._producer.send(
                topic,
                record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        async with asyncio.timeout(WITHIN_S):
            response = await asyncio.gather(*under_way)
        if None in response:  # with acks=0
            return []
        return [Delivered(partition=each.partition, offset=each.offset) for each in response]


class AioKafkaTransactionalWriter(AioKafkaWriter):
    """A `TransactionalWriter`."""

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> None:
        places = {TopicPartition(topic, partition): to for partition, to in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(places, member.group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())


class AioKafkaReader:
    """A `Reader`."""

    def __init__(self, loop: Loop, consumer: Any, topic: str) -> None:
        self._loop = loop
        self._consumer = consumer
        self._topic = topic

    def assign(self, starts: Mapping[int, Place]) -> None:
        """Assign the partitions."""

        async def assign() -> None:
            self._consumer.assign([TopicPartition(self._topic, each) for each in starts])
            for partition, to in starts.items():
                await self._seek(partition, to)

        self._loop.run(assign())

    def seek(self, partition: int, to: Place) -> None:
        self._loop.run(self._seek(partition, to))

    async def _seek(self, partition: int, to: Place) -> None:
        place = TopicPartition(self._topic, partition)
        if to == "beginning":
            await self._consumer.seek_to_beginning(place)
        elif to == "end":
            await self._consumer.seek_to_end(place)
        else:
            self._consumer.seek(place, to)

    def pause(self, partition: int) -> None:
        self._loop.run(self._call(self._consumer.pause, partition))

    def resume(self, partition: int) -> None:
        self._loop.run(self._call(self._consumer.resume, partition))

    async def _call(self, function: Callable[[TopicPartition], None], partition: int) -> None:
        function(TopicPartition(self._topic, partition))

    def poll(self, within_s: float) -> list[Found]:
        polled = self._loop.run(self._consumer.getmany(timeout_ms=int(within_s * 1000)))
        return [_found(record) for records in polled.values() for record in records]


class AioKafkaMember(AioKafkaReader):
    """A `Member`."""

    def __init__(self, loop: Loop, consumer: Any, topic: str, group: str) -> None:
        super().__init__(loop, consumer, topic)
        self.group = group

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())


def _found(record: Any) -> Found:
    return Found(
        partition=record.partition,
        offset=record.offset,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
    )


class AioKafkaAdmin:
    """An `Admin`."""

    def __init__(self, loop: Loop, client: Any) -> None:
        self._loop = loop
        self._client = client

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        new = AioTopic(
            name=topic.name,
            num_partitions=-1 if topic.assignments else topic.partitions,
            replication_factor=-1 if topic.assignments else topic.replication,
            replica_assignments=dict(enumerate(map(list, topic.assignments))) or None,
            topic_configs=dict(topic.configs),
        )
        response = self._loop.run(self._client.create_topics([new], validate_only=validate_only))
        _check(response.topic_errors)

    def delete(self, topic: str) -> None:
        response = self._loop.run(self._client.delete_topics([topic]))
        _check(response.topic_error_codes)

    def topics(self) -> set[str]:
        return set(self._loop.run(self._client.list_topics()))

    def describe(self, topic: str) -> dict[int, Replicas]:
        (found,) = self._loop.run(self._client.describe_topics([topic]))
        if found["error_code"]:
            raise Refused(found["error_code"], topic)
        return {
            each["partition"]: Replicas(
                leader=each["leader"], replicas=tuple(each["replicas"]), isr=tuple(each["isr"])
            )
            for each in found["partitions"]
        }

    def brokers(self) -> Brokers:
        found = self._loop.run(self._client.describe_cluster())
        return Brokers(
            cluster_id=found.get("cluster_id"),
            controller=found["controller_id"],
            addresses={
                each["node_id"]: f"{each['host']}:{each['port']}" for each in found["brokers"]
            },
        )

    def grow(self, topic: str, partitions: int) -> None:
        self._loop.run(self._client.create_partitions({topic: NewPartitions(partitions)}))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        wanted = {TopicPartition(topic, at): RecordsToDelete(to) for at, to in before.items()}
        self._loop.run(self._client.delete_records(wanted))

    def configs(self, topic: str) -> dict[str, str | None]:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._loop.run(self._client.describe_configs([wanted]))
        ((code, message, _, _, entries),) = response.resources
        if code:
            raise Refused(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter_configs(self, topic: str, values: Mapping[str, str]) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(values))
        (response,) = self._loop.run(self._client.alter_configs([wanted]))
        for code, message, *_ in response.resources:
            if code:
                raise Refused(code, message)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        raise AssertionError("excluded")

    def elect_preferred(self, topic: str, partition: int) -> None:
        raise AssertionError("excluded")


def _check(outcomes: Sequence[Sequence[Any]]) -> None:
    for name, code, *rest in outcomes:
        if code:
            raise Refused(code, f"{name}: {rest}")
