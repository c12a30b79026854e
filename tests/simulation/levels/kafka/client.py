"""A client of the Kafka protocol, with drawn versions of the requests."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quorumlog.errors import ConnectionFailed
from quorumlog.records import Record
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place

from ..transactions.committed_reads import READ_COMMITTED, READ_UNCOMMITTED, committed_part
from .connection import KafkaLink

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
INIT_PRODUCER_ID: Final = 22

# Newer versions identify topics by id.
VERSIONS: Final = {PRODUCE: (3, 12), FETCH: (4, 12), METADATA: (1, 12), INIT_PRODUCER_ID: (0, 4)}
OF_CLUSTER: Final = range(8, 11)  # versions of Metadata with the cluster's operations
FETCH_WAIT_MS: Final = 300
FETCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ProducerId:
    """The producer id and epoch of batch numbers."""

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response for one partition."""

    code: int
    end: int  # of the readable records
    records: list[tuple[int, bytes]]  # (offset, value), from the position on
    position: int  # of the next fetch


class KafkaClient:
    """Sends requests to the brokers; raises QuorumlogError without a response."""

    def __init__(
        self,
        runtime: Runtime,
        bootstrap: Sequence[str],
        *,
        name: str,
        timeout_ms: int,
        codec: Codec,
    ) -> None:
        self._runtime = runtime
        self._bootstrap = bootstrap
        self._name = name
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._entropy: Entropy = runtime.entropy.stream(f"kafka/{name}")
        self._links: dict[str, KafkaLink] = {}  # by address
        self._connecting: dict[str, asyncio.Lock] = {}
        self._addresses: dict[int, str] = {}  # of brokers
        self.leaders: dict[Place, int] = {}
        self.topic_ids: dict[str, bytes] = {}  # if the drawn version returns them
        self.versions = {
            key: low + self._entropy.below(high - low + 1) for key, (low, high) in VERSIONS.items()
        }

    async def look(self, topics: Sequence[str]) -> None:
        """Refresh the metadata from a drawn broker."""
        address = self.anybody()
        fields: dict[str, Any] = {
            "topics": [{"name": topic} for topic in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        if self.versions[METADATA] in OF_CLUSTER:
            fields["include_cluster_authorized_operations"] = False
        answer = await self._ask(address, METADATA, fields)
        self._addresses = {
            broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers
        }
        for topic in answer.topics:
            topic_id = getattr(topic, "topic_id", None)
            if topic_id is not None:
                self.topic_ids[topic.name] = topic_id.bytes
            for part in topic.partitions:
                place = (topic.name, part.partition_index)
                if part.leader_id >= 0:
                    self.leaders[place] = part.leader_id
                else:
                    self.leaders.pop(place, None)

    async def producer_id(self) -> ProducerId:
        """Return a new producer id."""
        address = self._bootstrap[self._entropy.below(len(self._bootstrap))]
        fields = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask(address, INIT_PRODUCER_ID, fields)
        if answer.error_code:
            raise ConnectionFailed(f"no producer id: error {int(answer.error_code)}")
        return ProducerId(answer.producer_id, answer.producer_epoch)

    async def produce(
        self,
        place: Place,
        values: Sequence[bytes],
        *,
        acks: int,
        producer: ProducerId,
        sequence: int,
    ) -> tuple[int, int]:
        """Send a batch to the leader; return the error code and the first record's offset."""
        now_ms = self._runtime.clock.wall_ms()
        records = encode_batch(
            [Record(0, now_ms, None, value) for value in values],
            codec=self._codec,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )
        topic, index = place
        data = {"name": topic, "partition_data": [{"index": index, "records": records}]}
        fields = {
            "transactional_id": None,
            "acks": acks,
            "timeout": self._timeout_ms // 2,
            "topic_data": [data],
        }
        answer = await self._ask(self._leader(place), PRODUCE, fields)
        ((result,),) = [one.partition_responses for one in answer.responses]
        return int(result.error_code), int(result.base_offset)

    async def fetch(
        self, address: str, positions: Mapping[Place, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[Place, Fetched]:
        """Fetch partitions that one broker leads."""
        parts = await self.fetch_parts(address, positions, isolation=isolation)
        return {place: fetched(part, positions[place], isolation) for place, part in parts.items()}

    async def fetch_parts(
        self,
        address: str,
        positions: Mapping[Place, int],
        *,
        isolation: int = READ_UNCOMMITTED,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> dict[Place, Any]:
        """Fetch partitions that one broker leads; return the response's part of each."""
        fields = fetch_fields(positions, isolation=isolation, wait_ms=wait_ms)
        answer = await self._ask(address, FETCH, fields)
        return {
            (one.topic, part.partition_index): part
            for one in answer.responses
            for part in one.partitions
        }

    def address_of(self, place: Place) -> str | None:
        """Return the address of a partition's leader, None if unknown."""
        return self._addresses.get(self.leaders.get(place, -1))

    def anybody(self) -> str:
        """Return the address of a drawn broker."""
        known = sorted({*self._bootstrap, *self._addresses.values()})
        return known[self._entropy.below(len(known))]

    def close(self) -> None:
        """Close every connection."""
        for link in self._links.values():
            link.end()
        self._links.clear()

    # --- inside --------------------------------------------------------------------------------

    def _leader(self, place: Place) -> str:
        address = self.address_of(place)
        if address is None:
            raise ConnectionFailed(f"no leader of {place} is known")
        return address

    async def _ask(self, address: str, key: int, fields: Mapping[str, Any]) -> Any:
        async with self._connecting.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            if link is None or link.is_over:
                link = await KafkaLink.open(self._runtime, address, self._name)
                self._links[address] = link
        return await link.ask(key, self.versions[key], fields, timeout_ms=self._timeout_ms)


def fetch_fields(
    positions: Mapping[Place, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    wait_ms: int = 0,
    part_bytes_max: int = FETCH_BYTES,
) -> dict[str, Any]:
    """Return the fields of a fetch request."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in positions.items():
        part = {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": part_bytes_max,
        }
        by_topic.setdefault(topic, []).append(part)
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": FETCH_BYTES,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": parts} for topic, parts in by_topic.items()],
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def fetched(part: Any, position: int, isolation: int) -> Fetched:
    """Return the response for one partition, fetched from a position."""
    end = part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark
    found = committed_part(part, position)
    return Fetched(int(part.error_code), int(end), found.records, found.position)
