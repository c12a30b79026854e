"""Requests of a transactional producer in Kafka's protocol, of the old or the new version.

The version of a producer is that of its EndTxn requests. `OLD` adds partitions and groups by
requests of their own, and its epoch lasts over many transactions. `NEW` (KIP-890 part 2) adds them
by Produce and TxnOffsetCommit, and gets another epoch at the end of each transaction.

The old version is correct only if a delayed request of a former connection never arrives: so its
connections lose what is in flight when they end. Requests of `NEW` may arrive late, or again.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from quorumlog.errors import ConnectionFailed, QuorumlogError, StreamBroken
from quorumlog.ids import ProducerIdentity
from quorumlog.records import Record
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place

from ..kafka.client import KafkaClient
from ..kafka.connection import KafkaLink

PRODUCE: Final = 0
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS: Final = 24
ADD_OFFSETS: Final = 25
END_TXN: Final = 26
WRITE_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
LIST_TRANSACTIONS: Final = 66

GROUP, TRANSACTION = 0, 1
NO_PRODUCER: Final = ProducerIdentity(-1, -1)
SESSION_MS: Final = 60_000  # of members; they send no heartbeats, so each one expires after it

# Error codes.
NONE: Final = 0
TIMED_OUT: Final = 7
LOADING: Final = 14
NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER: Final = 25
REBALANCING: Final = 27
OUT_OF_ORDER: Final = 45
DUPLICATE_SEQUENCE: Final = 46
INVALID_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_MAPPING: Final = 49
CONCURRENT: Final = 51
UNKNOWN_PRODUCER: Final = 59
FENCED_INSTANCE: Final = 82
UNSTABLE_OFFSET: Final = 88
FENCED: Final = 90
ABORTABLE: Final = 120

ELSEWHERE: Final = frozenset({LOADING, NOT_AVAILABLE, NOT_COORDINATOR})
"""Look up the coordinator again, and retry after a pause."""
RETRIABLE: Final = ELSEWHERE | {3, 5, 6, 8, 9, TIMED_OUT, 13, 19, 20, CONCURRENT, 56, 74, 75}
RETRIABLE_MEMBER: Final = ELSEWHERE | {TIMED_OUT, REBALANCING}
FATAL: Final = frozenset({INVALID_EPOCH, INVALID_MAPPING, FENCED})
"""Another producer has the transactional id, or the coordinator has ended the transaction."""
NO_LONGER_MEMBER: Final = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED_INSTANCE})


class Generation(StrEnum):
    """The version of the transaction protocol that a producer uses."""

    OLD = "old"
    NEW = "new"


VERSIONS: Final[Mapping[Generation, Mapping[int, tuple[int, int]]]] = {
    Generation.OLD: {
        PRODUCE: (3, 11),
        OFFSET_FETCH: (7, 9),
        FIND_COORDINATOR: (4, 6),
        JOIN_GROUP: (5, 9),
        SYNC_GROUP: (3, 5),
        INIT_PRODUCER_ID: (3, 5),
        ADD_PARTITIONS: (0, 3),
        ADD_OFFSETS: (0, 4),
        END_TXN: (0, 4),
        TXN_OFFSET_COMMIT: (3, 4),
    },
    Generation.NEW: {
        PRODUCE: (12, 12),
        OFFSET_FETCH: (8, 9),
        FIND_COORDINATOR: (4, 6),
        JOIN_GROUP: (9, 9),
        SYNC_GROUP: (5, 5),
        INIT_PRODUCER_ID: (4, 5),
        END_TXN: (5, 5),
        TXN_OFFSET_COMMIT: (5, 5),
    },
}


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group."""

    member_id: str = ""
    generation_id: int = -1
    instance_id: str = ""


NO_MEMBER: Final = Member()
NO_NOTES: Final[Mapping[Place, str]] = {}


@dataclass(slots=True)
class Interference:
    """Requests that arrive late or twice, by drawn chances. Only for producers of version `NEW`."""

    entropy: Entropy
    delayed: float = 0.0  # probability that a request arrives later only
    repeated: float = 0.0  # probability that a request arrives once more
    delay_ms: tuple[int, int] = (50, 6_000)
    counts: Counter[str] = field(default_factory=Counter)


class TransactionCalls:
    """Sends the requests of one producer; raises QuorumlogError without a response."""

    def __init__(
        self,
        runtime: Runtime,
        client: KafkaClient,
        name: str,
        generation: Generation,
        *,
        timeout_ms: int,
        interference: Interference | None = None,
    ) -> None:
        """Create the calls; `client` finds the brokers."""
        self.generation = generation
        self.client = client
        self._runtime = runtime
        self._name = name
        self._timeout_ms = timeout_ms
        self._interference = interference if generation is Generation.NEW else None
        self._links: dict[str, KafkaLink] = {}  # by address
        self._opening: dict[str, asyncio.Lock] = {}
        self._coordinators: dict[tuple[int, str], str] = {}  # addresses, by key type and key
        self._late: set[asyncio.Task[None]] = set()
        entropy = runtime.entropy.stream(f"versions of {name}")
        self.versions = {
            key: low + entropy.below(high - low + 1)
            for key, (low, high) in VERSIONS[generation].items()
        }

    def close(self) -> None:
        """Close every connection; late requests still arrive."""
        self.drop_connections()
        self.client.close()

    def drop_connections(self) -> None:
        """Reset every connection; requests in flight fail."""
        for link in self._links.values():
            link.end(is_drained=self.generation is Generation.OLD)
        self._links.clear()

    # --- the transaction coordinator -----------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, current: ProducerIdentity = NO_PRODUCER
    ) -> tuple[int, ProducerIdentity]:
        """Return the error code and the producer's identity."""
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": current.producer_id,
            "producer_epoch": current.producer_epoch,
        }
        answer = await self._ask_coordinator(
            TRANSACTION, transactional_id, INIT_PRODUCER_ID, fields
        )
        identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code), identity

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, places: Sequence[Place]
    ) -> int:
        """Add partitions to the transaction; return the first error code."""
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": some} for name, some in topics.items()
            ],
        }
        answer = await self._ask_coordinator(TRANSACTION, transactional_id, ADD_PARTITIONS, fields)
        codes = [
            int(part.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]
        return self._refused(TRANSACTION, transactional_id, codes)

    async def add_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group: str
    ) -> int:
        """Add a group to the transaction; return the error code."""
        fields = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "group_id": group,
        }
        answer = await self._ask_coordinator(TRANSACTION, transactional_id, ADD_OFFSETS, fields)
        return int(answer.error_code)

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, is_commit: bool
    ) -> tuple[int, ProducerIdentity]:
        """End the transaction; return the error code and the identity for the next one."""
        fields = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "committed": is_commit,
        }
        answer = await self._ask_coordinator(TRANSACTION, transactional_id, END_TXN, fields)
        following = producer
        if self.generation is Generation.NEW:
            following = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code), following

    async def write_marker(
        self, place: Place, producer: ProducerIdentity, *, is_commit: bool, coordinator_epoch: int
    ) -> int:
        """Send a marker to a partition's leader, as a coordinator does; return the error code."""
        topic, index = place
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": is_commit,
            "topics": [{"name": topic, "partition_indexes": [index]}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": 2,
        }
        answer = await self._ask(
            self._leader_of(place), WRITE_MARKERS, {"markers": [marker]}, version=2
        )
        ((part,),) = [topic.partitions for topic in answer.markers[0].topics]
        return int(part.error_code)

    async def open_transactions(self, address: str) -> tuple[int, list[str]]:
        """Return the error code of a broker, and its transactions that are not complete."""
        fields = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
        answer = await self._ask(address, LIST_TRANSACTIONS, fields, version=1)
        found = [
            f"{one.transactional_id} {one.transaction_state}"
            for one in answer.transaction_states
            if one.transaction_state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
        ]
        return int(answer.error_code), found

    # --- partitions ----------------------------------------------------------------------------

    async def produce(
        self,
        place: Place,
        values: Sequence[tuple[bytes | None, bytes]],
        *,
        transactional_id: str,
        producer: ProducerIdentity,
        sequence: int,
    ) -> tuple[int, int]:
        """Send a batch of (key, value) to the partition's leader; return the error code and the
        first record's offset."""
        now_ms = self._runtime.clock.wall_ms()
        records = encode_batch(
            [Record(0, now_ms, key, value) for key, value in values],
            codec=Codec.NONE,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        topic, index = place
        data = {"name": topic, "partition_data": [{"index": index, "records": records}]}
        fields = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout": self._timeout_ms // 2,
            "topic_data": [data],
        }
        answer = await self._ask(self._leader_of(place), PRODUCE, fields)
        ((result,),) = [one.partition_responses for one in answer.responses]
        return int(result.error_code), int(result.base_offset)

    # --- the group coordinator -----------------------------------------------------------------

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        offsets: Mapping[Place, int],
        member: Member = NO_MEMBER,
        notes: Mapping[Place, str] = NO_NOTES,
    ) -> int:
        """Commit offsets, with metadata, in the transaction; return the first error code."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), offset in offsets.items():
            part = {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": notes.get((topic, index), ""),
            }
            topics.setdefault(topic, []).append(part)
        fields = {
            "transactional_id": transactional_id,
            "group_id": group,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "generation_id": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id or None,
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        answer = await self._ask_coordinator(GROUP, group, TXN_OFFSET_COMMIT, fields)
        codes = [int(part.error_code) for topic in answer.topics for part in topic.partitions]
        return self._refused(GROUP, group, codes)

    async def fetch_offsets(
        self, group: str, places: Sequence[Place]
    ) -> tuple[int, dict[Place, int]]:
        """Fetch stable offsets; return the first error code, and the offsets."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        topics = [{"name": name, "partition_indexes": some} for name, some in by_topic.items()]
        fields: dict[str, Any] = {"require_stable": True}
        has_groups = self.versions[OFFSET_FETCH] >= 8
        if has_groups:
            fields["groups"] = [{"group_id": group, "topics": topics}]
        else:
            fields |= {"group_id": group, "topics": topics}
        answer = await self._ask_coordinator(GROUP, group, OFFSET_FETCH, fields)
        found = answer.groups[0] if has_groups else answer
        parts = {
            (topic.name, part.partition_index): part
            for topic in found.topics
            for part in topic.partitions
        }
        codes = [int(found.error_code), *(int(part.error_code) for part in parts.values())]
        code = self._refused(GROUP, group, codes)
        return code, {place: int(part.committed_offset) for place, part in parts.items()}

    async def join(self, group: str, instance_id: str) -> tuple[int, Member]:
        """Join a group as its only, static member; the previous one is fenced."""
        fields: dict[str, Any] = {
            "group_id": group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": 5_000,
            "member_id": "",
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        answer = await self._ask_coordinator(GROUP, group, JOIN_GROUP, fields)
        member = Member(answer.member_id, answer.generation_id, instance_id)
        if answer.error_code:
            return int(answer.error_code), member
        fields = {
            "group_id": group,
            "generation_id": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member.member_id, "assignment": b""}],
        }
        answer = await self._ask_coordinator(GROUP, group, SYNC_GROUP, fields)
        return int(answer.error_code), member

    # --- inside --------------------------------------------------------------------------------

    def _leader_of(self, place: Place) -> str:
        address = self.client.address_of(place)
        if address is None:
            raise ConnectionFailed(f"no leader of {place} is known")
        return address

    def _refused(self, kind: int, key: str, codes: Sequence[int]) -> int:
        """Return the first error; forget a coordinator that is no longer one."""
        if any(code in ELSEWHERE for code in codes):
            self._coordinators.pop((kind, key), None)
        return next(filter(None, codes), NONE)

    async def _ask_coordinator(
        self, kind: int, key: str, api: int, fields: Mapping[str, Any]
    ) -> Any:
        address = self._coordinators.get((kind, key))
        if address is None:
            address = self._coordinators[kind, key] = await self._find(kind, key)
        try:
            answer = await self._ask(address, api, fields)
        except QuorumlogError:
            self._coordinators.pop((kind, key), None)
            raise
        if int(getattr(answer, "error_code", NONE)) in ELSEWHERE:
            self._coordinators.pop((kind, key), None)
        return answer

    async def _find(self, kind: int, key: str) -> str:
        fields = {"key_type": kind, "coordinator_keys": [key]}
        answer = await self._ask(self.client.anybody(), FIND_COORDINATOR, fields)
        found = answer.coordinators[0]
        if found.error_code:
            raise ConnectionFailed(f"no coordinator: error {int(found.error_code)}")
        return f"{found.host}:{found.port}"

    async def _ask(
        self, address: str, api: int, fields: Mapping[str, Any], *, version: int = -1
    ) -> Any:
        version = self.versions[api] if version < 0 else version
        if self._interfere(address, api, version, fields):
            raise StreamBroken("the request is delayed")
        link = await self._linked(address)
        try:
            return await link.ask(api, version, fields, timeout_ms=self._timeout_ms)
        except QuorumlogError:
            link.end(is_drained=self.generation is Generation.OLD)
            raise

    async def _linked(self, address: str) -> KafkaLink:
        async with self._opening.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            if link is None or link.is_over:
                if link is not None:
                    link.end(is_drained=self.generation is Generation.OLD)
                link = await KafkaLink.open(self._runtime, address, self._name)
                self._links[address] = link
        return link

    def _interfere(self, address: str, api: int, version: int, fields: Mapping[str, Any]) -> bool:
        """Send a late copy of the request, by a drawn chance. Return True if it is the only one."""
        found = self._interference
        if found is None or api in (FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, OFFSET_FETCH):
            return False
        drawn = found.entropy.uniform(0, 1)
        if drawn >= found.delayed + found.repeated:
            return False
        low, high = found.delay_ms
        delay_ms = low + found.entropy.below(high - low)
        sending = self._send_late(address, api, version, fields, delay_ms)
        task = asyncio.get_running_loop().create_task(sending)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        found.counts["delayed" if drawn < found.delayed else "repeated"] += 1
        return drawn < found.delayed

    async def _send_late(
        self, address: str, api: int, version: int, fields: Mapping[str, Any], delay_ms: int
    ) -> None:
        assert self._interference is not None
        await asyncio.sleep(delay_ms / 1000)
        try:
            link = await KafkaLink.open(self._runtime, address, f"{self._name} late")
        except QuorumlogError:
            return
        try:
            await link.ask(api, version, fields, timeout_ms=self._timeout_ms)
            self._interference.counts["late answers"] += 1
        except QuorumlogError:
            pass
        finally:
            link.end()
