"""Requests to a broker of the Kafka protocol, one at a time: topics, leaders, offsets, records."""

import dataclasses
import socket
import struct
import time
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from io import BytesIO
from types import TracebackType
from typing import Any

from benchmarks.raft.processes import Refused

CLIENT_ID = "load"
ANSWER_S = 120.0
SETTLE_S = 60.0  # until a new topic has its leaders

PRODUCE, FETCH, LIST_OFFSETS, METADATA = (0, 9), (1, 12), (2, 6), (3, 9)
CREATE_TOPICS, DELETE_TOPICS = (19, 5), (20, 4)
"""Keys and versions that every broker here supports. Produce and Fetch name topics by their names,
so that the bytes are the same for all."""

EARLIEST, LATEST = -2, -1
TOPIC_EXISTS = 36


@cache
def writer_of(key: int, version: int) -> tuple[type[Any], Callable[[BytesIO, Any], None]]:
    """Return a request's class, and its encoder."""
    from kio.index import load_request_schema
    from kio.serial import entity_writer

    schema = load_request_schema(key, version)
    return schema, entity_writer(schema)


def message_of(schema: type[Any], values: Mapping[str, Any]) -> Any:
    """Return a message of plain values: mappings for its parts, milliseconds for durations."""
    made: dict[str, Any] = {}
    hints = typing.get_type_hints(schema)
    for each in dataclasses.fields(schema):
        nested = _nested(hints[each.name])
        if each.name not in values:
            if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
                made[each.name] = ()  # only arrays have no default
        elif values[each.name] is None:
            made[each.name] = None
        elif nested:
            made[each.name] = tuple(message_of(nested, value) for value in values[each.name])
        elif each.metadata.get("kafka_type") == "timedelta_i32":
            made[each.name] = timedelta(milliseconds=values[each.name])
        else:
            value = values[each.name]
            made[each.name] = tuple(value) if isinstance(value, list) else value
    return schema(**made)


def _nested(hint: Any) -> type[Any] | None:
    """Return the class of the elements of an array of messages, which may be null."""
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type), "the hint is a class"
        return hint
    return next((found for part in typing.get_args(hint) if (found := _nested(part))), None)


@cache
def reader_of(key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    """Return the decoder of a response."""
    from kio.index import load_response_schema
    from kio.serial import entity_reader

    reader: Callable[[bytes, int], tuple[Any, int]] = entity_reader(
        load_response_schema(key, version)
    )
    return reader


def frame_of(kind: tuple[int, int], fields: Mapping[str, Any], *, correlation_id: int) -> bytes:
    """Return a request with its size before it."""
    key, version = kind
    (schema, write), out, name = writer_of(key, version), BytesIO(), CLIENT_ID.encode()
    write(out, message_of(schema, fields))
    header = struct.pack(">hhih", key, version, correlation_id, len(name)) + name
    if schema.__flexible__:
        header += b"\x00"
    return struct.pack(">i", len(header) + out.tell()) + header + out.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The leader of a partition."""

    partition: int
    port: int


class Asker:
    """One connection to one broker on this machine, during a block."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._answers = self._socket.makefile("rb")
        self._asked = 0

    def __enter__(self) -> "Asker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, kind: tuple[int, int], **fields: Any) -> Any:
        """Return the message of the response to a request of these fields. Raise OSError."""
        self._asked += 1
        self._socket.sendall(frame_of(kind, fields, correlation_id=self._asked))
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        (correlation_id,) = struct.unpack_from(">i", frame)
        assert correlation_id == self._asked, f"response {correlation_id} to {self._asked}"
        begin = 5 if writer_of(*kind)[0].__flexible__ else 4
        message, end = reader_of(*kind)(frame[begin:], 0)
        assert end == size - begin, f"{size - begin - end} bytes after a response"
        return message

    def _read(self, size: int) -> bytes:
        content = self._answers.read(size)
        if len(content) < size:
            raise ConnectionResetError("the broker hung up")
        return content

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(
        self, name: str, *, partitions: int, replication: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        (found,) = self.ask(CREATE_TOPICS, topics=[topic], timeout=30_000).topics
        check(f"topic {name} is not made: {found.error_message}", found.error_code)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        answer = self.ask(DELETE_TOPICS, topic_names=[name], timeout=30_000)
        check(f"topic {name} is not removed", answer.responses[0].error_code)

    def leaders(self, topic: str, *, partitions: int, replication: int) -> list[Leader]:
        """Return the leader of each partition, once all have leaders and every replica is in
        sync."""
        deadline_s = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline_s:
            answer = self.ask(
                METADATA,
                topics=[{"name": topic}],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            ports = {broker.node_id: broker.port for broker in answer.brokers}
            found = {
                each.partition_index: ports[each.leader_id]
                for each in answer.topics[0].partitions
                if each.leader_id in ports and len(each.isr_nodes) >= replication
            }
            if len(found) == partitions:
                return [Leader(partition=number, port=found[number]) for number in sorted(found)]
            time.sleep(0.1)
        raise Refused(f"topic {topic} has no leaders after {SETTLE_S:.0f} s: {answer.topics}")

    def wait_leads(self, topic: str, partition: int) -> None:
        """Wait until this broker leads a partition by its own metadata."""
        deadline_s = time.monotonic() + SETTLE_S
        while True:
            try:
                self.offset(topic, partition, LATEST)
            except Refused:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
            else:
                return

    def offset(self, topic: str, partition: int, at: int) -> int:
        """Return the offset of the first record, or the log end offset, from the leader."""
        asked = {"partition_index": partition, "timestamp": at}
        answer = self.ask(
            LIST_OFFSETS,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": [asked]}],
        )
        (found,) = answer.topics[0].partitions
        check(f"{topic}-{partition} does not say its ends", found.error_code)
        return int(found.offset)

    def records(self, topic: str, partition: int, *, offset: int, max_bytes: int) -> bytes:
        """Return the records of a fetch from there."""
        answer = self.ask(FETCH, **fetch_fields(topic, partition, offset, max_bytes=max_bytes))
        (found,) = answer.responses[0].partitions
        check(f"{topic}-{partition} cannot be fetched", found.error_code)
        return bytes(found.records or b"")


def fetch_fields(
    topic: str, partition: int, offset: int, *, max_bytes: int, min_bytes: int = 1
) -> dict[str, Any]:
    """Return the fields of a fetch of one partition with consumers' defaults, without a session."""
    return {
        "max_wait": 500,
        "min_bytes": min_bytes,
        "max_bytes": 50 << 20,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": max_bytes,
                    }
                ],
            }
        ],
    }


def check(what: str, code: Any) -> None:
    """Raise Refused for an error code other than 0."""
    if int(code):
        raise Refused(f"{what} ({code!r})")


def answers(port: int, *, within_s: float) -> float:
    """Wait until a broker responds to a request for metadata; return the time (perf_counter)."""
    deadline_s = time.perf_counter() + within_s
    while time.perf_counter() < deadline_s:
        try:
            with Asker(port) as asker:
                found = asker.ask(
                    METADATA,
                    topics=[],
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                )
                if found.brokers:
                    return time.perf_counter()
        except OSError:
            pass
        time.sleep(0.01)
    raise Refused(f"port {port}: no answer within {within_s:.0f} s")


def distinct_ports(leaders: Iterable[Leader]) -> set[int]:
    """Return the ports of the brokers that lead a partition."""
    return {leader.port for leader in leaders}
