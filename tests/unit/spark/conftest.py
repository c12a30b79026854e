"""A scripted broker with encoded batches that responds over real gRPC, also with faults.

tests/spark has the tests with a real broker; this one does what a healthy broker does not.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from quorumlog.errors import (
    GroupNotFound,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition
from quorumlog.metadata.topic_configs import check_config
from quorumlog.proto import admin_pb2, groups_pb2, log_pb2
from quorumlog.records import encode_batch, parse_header
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.record import Record
from quorumlog.runtime import CallContext, Handler, Runtime, Stream, real
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import (
    ADMIN_ALTER_CONFIGS,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    GROUPS_COMMIT_OFFSETS,
    GROUPS_DELETE,
    GROUPS_FETCH_OFFSETS,
    LOG_LIST_OFFSETS,
    LOG_SUBSCRIBE,
)
from quorumlog.spark import query_group


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the short waits: a slow machine may take more than a second."""
    monkeypatch.setattr(query_group, "COMMIT_TIMEOUT_MS", 60_000)


@dataclass
class Script:
    """The records of the broker, and its faults."""

    batches: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    ghosts: list[str] = field(default_factory=list)
    """Topics that are listed and do not exist."""
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    faults: list[QuorumlogError | str] = field(default_factory=list)
    """One for each subscription to come: an error ends it after its first answer, "silence" sends
    nothing, "early end" ends it cleanly after its first answer, "stall" sends nothing after it,
    "deletion" deletes the topic and says so after its first answer, "recreation" does, and makes it
    anew with other records."""
    refusals: list[QuorumlogError] = field(default_factory=list)
    """One for each look-up of topics, their offsets or records to come: it is refused with that."""
    times_refused: list[QuorumlogError] = field(default_factory=list)
    """One for each partition's look-up of a time to come: its result is that error."""
    topic_id: bytes = b"1" * 16
    cluster_id: str = "cluster-1"
    meanwhile: list[Callable[[], None]] = field(default_factory=list)
    """One for each look-up of offsets to come: what happens behind it."""
    lookups: list[tuple[str, ...]] = field(default_factory=list)
    """The topics that each look-up named."""
    subscriptions: list[int] = field(default_factory=list)
    """The offset that each subscription asked for."""
    groups: dict[str, dict[TopicPartition, tuple[int, str]]] = field(default_factory=dict)
    """By group what it has committed: offsets and notes."""
    commits: list[tuple[str, dict[TopicPartition, int]]] = field(default_factory=list)
    """Every commit that was taken."""
    group_faults: list[QuorumlogError | Callable[[], None] | None] = field(default_factory=list)
    """One for each call to come that is about a group: what it is refused with, or what happens."""
    deleted: set[TopicPartition] = field(default_factory=set)
    """Partitions of which no commit is taken."""
    holds: dict[str, list[str]] = field(default_factory=dict)
    """By topic the list retention.holds."""
    address: str = ""

    def add(self, place: TopicPartition, *counts: int) -> None:
        """Append batches of so many records, whose values have partition and offset."""
        held = self.batches.setdefault(place, [])
        for count in counts:
            base = self.end(place)
            records = [
                Record(
                    offset=offset,
                    timestamp_ms=1_000 + offset,
                    key=b"k%d" % (offset % 3),
                    value=f"{place}@{offset}".encode(),
                    headers=(),
                )
                for offset in range(base, base + count)
            ]
            held.append(encode_batch(records, base_offset=base))

    def mark(self, place: TopicPartition) -> None:
        """Append a control batch, which ends a transaction."""
        marker = encode_marker(
            producer_id=1,
            producer_epoch=0,
            kind=MarkerType.COMMIT,
            coordinator_epoch=0,
            timestamp_ms=1_000,
            base_offset=self.end(place),
        )
        self.batches.setdefault(place, []).append(marker)

    def make_anew(self, *counts: int) -> None:
        """Delete all topics with the committed offsets of groups, and create topics of the same
        names with batches of so many records."""
        for kept in self.groups.values():
            kept.clear()
        self.topic_id = bytes([self.topic_id[0] + 1]) * 16
        places = list(self.batches)
        self.batches.clear()
        for place in places:
            self.add(place, *counts)

    def refuse(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    def check(self, topic_id: bytes) -> None:
        if topic_id not in (b"", self.topic_id):
            raise UnknownTopicId("another topic")

    def end(self, place: TopicPartition) -> int:
        held = self.batches.get(place, [])
        return parse_header(held[-1]).next_offset if held else 0


class StandIn:
    """The handlers for a script."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def handlers(self) -> dict[str, Handler]:
        offered = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self.describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self.describe_topics),
            Handler(ADMIN_LIST_TOPICS, self.list_topics),
            Handler(LOG_LIST_OFFSETS, self.list_offsets),
            Handler(LOG_SUBSCRIBE, self.subscribe),
            Handler(ADMIN_DESCRIBE_LOG_DIRS, self.describe_log_dirs),
            Handler(ADMIN_ALTER_CONFIGS, self.alter_configs),
            Handler(GROUPS_COMMIT_OFFSETS, self.commit_offsets),
            Handler(GROUPS_FETCH_OFFSETS, self.fetch_offsets),
            Handler(GROUPS_DELETE, self.delete_groups),
        ]
        return {handler.method.path: handler for handler in offered}

    async def describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id=self._script.cluster_id)

    async def list_topics(
        self, request: admin_pb2.ListTopicsRequest, context: CallContext
    ) -> admin_pb2.ListTopicsResponse:
        names = sorted({place.topic for place in self._script.batches} | {*self._script.ghosts})
        return admin_pb2.ListTopicsResponse(
            topics=[admin_pb2.TopicListing(name=name) for name in names]
        )

    async def describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        self._script.lookups.append(tuple(request.names))
        self._script.refuse()
        response = admin_pb2.DescribeTopicsResponse()
        response.brokers.add(id=1, grpc_address=self._script.address)
        for name in request.names:
            places = [place for place in sorted(self._script.batches) if place.topic == name]
            result = response.results.add(name=name)
            result.topic.name = name
            result.topic.topic_id = self._script.topic_id
            if name in self._script.holds:
                value = ",".join(self._script.holds[name])
                result.topic.configs.add(name="retention.holds", value=value)
            for place in places:
                result.topic.partitions.add(partition=place.partition, leader=1)
            if not places:
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("no such topic")))
        return response

    async def list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        self._script.refuse()
        response = log_pb2.ListOffsetsResponse()
        for asked in request.partitions:
            place = TopicPartition(asked.topic, asked.partition)
            self._script.check(asked.topic_id)
            if place not in self._script.batches:
                error = encode_error(UnknownTopicOrPartition("no such topic"))
                response.results.add(topic=place.topic, partition=place.partition, error=error)
                continue
            start, end = self._script.log_starts.get(place, 0), self._script.end(place)
            if asked.timestamp_ms >= 0 and self._script.times_refused:
                error = encode_error(self._script.times_refused.pop(0))
                response.results.add(topic=place.topic, partition=place.partition, error=error)
                continue
            match asked.timestamp_ms:
                case -2:
                    offset = start
                case -1:
                    offset = end
                case time_ms:
                    offset = max(time_ms - 1_000, start)
                    offset = offset if offset < end else -1
            response.results.add(topic=place.topic, partition=place.partition, offset=offset)
        if self._script.meanwhile:
            self._script.meanwhile.pop(0)()
        return response

    async def subscribe(
        self,
        stream: Stream[log_pb2.SubscribeResponse, log_pb2.SubscribeRequest],
        context: CallContext,
    ) -> None:
        request = await stream.receive()
        assert request is not None
        self._script.refuse()
        place = TopicPartition(request.topic, request.partition)
        self._script.subscriptions.append(request.offset)
        self._script.check(request.topic_id)
        fault = self._script.faults.pop(0) if self._script.faults else None
        if request.offset < self._script.log_starts.get(place, 0):
            raise OffsetOutOfRange("the log starts later")
        if fault == "silence":
            await asyncio.sleep(3600)
        for batch in self._script.batches.get(place, ()):
            header = parse_header(batch)
            if header.next_offset <= request.offset or header.base_offset >= request.end_offset:
                continue
            await stream.send(
                log_pb2.SubscribeResponse(batches=batch, next_offset=header.next_offset)
            )
            if isinstance(fault, QuorumlogError):
                raise fault
            if fault == "early end":
                return
            if fault == "stall":
                await asyncio.sleep(3600)
            if fault == "deletion":
                self._script.batches.clear()
                raise UnknownTopicOrPartition("no such topic")
            if fault == "recreation":
                self._script.make_anew(30)
                raise UnknownTopicOrPartition("no such topic")

    async def describe_log_dirs(
        self, request: admin_pb2.DescribeLogDirsRequest, context: CallContext
    ) -> admin_pb2.DescribeLogDirsResponse:
        response = admin_pb2.DescribeLogDirsResponse(broker=1)
        directory = response.directories.add(path="/data")
        for place, batches in sorted(self._script.batches.items()):
            if place.topic in request.topics:
                directory.logs.add(
                    topic=place.topic,
                    partition=place.partition,
                    size_bytes=sum(map(len, batches)),
                    log_start_offset=self._script.log_starts.get(place, 0),
                    log_end_offset=self._script.end(place),
                )
        return response

    async def alter_configs(
        self, request: admin_pb2.AlterConfigsRequest, context: CallContext
    ) -> admin_pb2.AlterConfigsResponse:
        for change in request.changes:
            assert change.name == "retention.holds", change
            parts, held = change.value.split(","), self._script.holds.get(request.topic, [])
            if change.operation == admin_pb2.CONFIG_OPERATION_APPEND:
                held = held + parts
            else:
                assert set(parts) <= set(held), (parts, held)
                held = [part for part in held if part not in parts]
            check_config(change.name, ",".join(part for part in held if "@" in part))
            self._script.holds[request.topic] = held
        return admin_pb2.AlterConfigsResponse()

    def _fail(self) -> None:
        fault = self._script.group_faults.pop(0) if self._script.group_faults else None
        if isinstance(fault, QuorumlogError):
            raise fault
        if fault is not None:
            fault()

    async def commit_offsets(
        self, request: groups_pb2.CommitOffsetsRequest, context: CallContext
    ) -> groups_pb2.CommitOffsetsResponse:
        self._fail()
        taken = {
            TopicPartition(each.topic, each.partition): (each.offset, each.note)
            for each in request.offsets
            if (each.topic, each.partition) not in self._script.deleted
        }
        self._script.groups.setdefault(request.group, {}).update(taken)
        offsets = {place: offset for place, (offset, _) in taken.items()}
        self._script.commits.append((request.group, offsets))
        response = groups_pb2.CommitOffsetsResponse()
        for each in request.offsets:
            result = response.results.add(offset=each)
            if (each.topic, each.partition) in self._script.deleted:
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("no such topic")))
        return response

    async def fetch_offsets(
        self, request: groups_pb2.FetchOffsetsRequest, context: CallContext
    ) -> groups_pb2.FetchOffsetsResponse:
        self._fail()
        response = groups_pb2.FetchOffsetsResponse()
        for place, (offset, note) in sorted(self._script.groups.get(request.group, {}).items()):
            result = response.results.add()
            result.offset.topic, result.offset.partition = place
            result.offset.offset, result.offset.note = offset, note
        return response

    async def delete_groups(
        self, request: groups_pb2.DeleteGroupsRequest, context: CallContext
    ) -> groups_pb2.DeleteGroupsResponse:
        self._fail()
        response = groups_pb2.DeleteGroupsResponse()
        for name in request.groups:
            error = response.errors.add()
            if self._script.groups.pop(name, None) is None:
                error.CopyFrom(encode_error(GroupNotFound("no such group")))
        return response


@pytest.fixture
def script() -> Iterator[Script]:
    """A broker at `script.address` that follows the script."""
    held = Script()
    with Serving(held):
        yield held


class Serving:
    """Serves a script from a thread with its own loop."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: real.run(self._main), daemon=True)
        self._stop: Callable[[], Any] = lambda: None

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(20), "the stand-in does not start"

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(20)

    async def _main(self, runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        listener = await runtime.network.serve("127.0.0.1:0", StandIn(self._script).handlers())
        self._script.address = listener.address
        self._ready.set()
        await stopped.wait()
        await listener.close(0)
