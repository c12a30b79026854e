"""Group requests in Kafka's protocol, sent to the coordinator of the group."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quorumlog.errors import ConnectionFailed, QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import Place

from ..kafka.client import KafkaClient
from ..kafka.connection import KafkaLink

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DELETE_GROUPS: Final = 42
CONSUMER_HEARTBEAT: Final = 68

VERSIONS: Final = {
    OFFSET_COMMIT: (7, 9),
    OFFSET_FETCH: (6, 9),
    FIND_COORDINATOR: (4, 6),
    JOIN_GROUP: (5, 9),
    HEARTBEAT: (3, 4),
    LEAVE_GROUP: (3, 5),
    SYNC_GROUP: (3, 5),
    DELETE_GROUPS: (0, 2),
    CONSUMER_HEARTBEAT: (1, 1),
}
WITH_RETENTION: Final = (2, 4)  # versions of OffsetCommit with a retention time
STABLE_SINCE: Final = 7  # version of OffsetFetch
OF_MANY_GROUPS: Final = 8  # since this version OffsetFetch has a list of groups

# Error codes.
NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LOADING: Final = 14
NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER: Final = 25
REBALANCING: Final = 27
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE: Final = 82
FENCED_EPOCH: Final = 110
UNRELEASED_INSTANCE: Final = 111
STALE_EPOCH: Final = 113
ELSEWHERE: Final = frozenset({LOADING, NOT_AVAILABLE, NOT_COORDINATOR})
"""Look up the coordinator again, and retry after a pause."""
PASSING: Final = ELSEWHERE | {7}
"""The outcome is unknown: REQUEST_TIMED_OUT equals no response."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The committed offset of a partition; -1: none."""

    offset: int
    note: str


class GroupCalls:
    """Sends requests to the coordinator of one group, on a connection of its own, so that a waiting
    join delays no other request.

    Methods return error codes; QuorumlogError: no response.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: KafkaClient,
        group: str,
        *,
        timeout_ms: int,
        is_stable: bool = False,
    ) -> None:
        """Create the calls; `client` finds the brokers. With `is_stable` no offset is fetched while
        a transaction with another one is open."""
        self._runtime = runtime
        self._client = client
        self._group = group
        self._timeout_ms = timeout_ms
        self._is_stable = is_stable
        self._link: KafkaLink | None = None
        self._opening = asyncio.Lock()
        entropy = runtime.entropy.stream(f"versions of {group}")
        self.versions = {
            key: low + entropy.below(high - low + 1) for key, (low, high) in VERSIONS.items()
        }
        if is_stable:
            self.versions[OFFSET_FETCH] = max(STABLE_SINCE, self.versions[OFFSET_FETCH])

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.end()
            self._link = None

    # --- membership ----------------------------------------------------------------------------

    async def join(
        self,
        member_id: str,
        instance_id: str,
        *,
        session_ms: int,
        rebalance_ms: int,
        protocols: Sequence[tuple[str, bytes]],
    ) -> Any:
        """Join the next generation; return the response."""
        fields: dict[str, Any] = {
            "group_id": self._group,
            "session_timeout": session_ms,
            "rebalance_timeout": rebalance_ms,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name, data in protocols],
        }
        timeout_ms = rebalance_ms + self._timeout_ms
        return await self._ask(JOIN_GROUP, fields, instance_id, timeout_ms=timeout_ms)

    async def sync(
        self,
        member_id: str,
        instance_id: str,
        generation: int,
        given: Mapping[str, bytes],
        *,
        protocol: str,
        rebalance_ms: int,
    ) -> Any:
        """Get the member's assignment; return the response."""
        fields: dict[str, Any] = {
            "group_id": self._group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": protocol,
            "assignments": [{"member_id": one, "assignment": part} for one, part in given.items()],
        }
        timeout_ms = rebalance_ms + self._timeout_ms
        return await self._ask(SYNC_GROUP, fields, instance_id, timeout_ms=timeout_ms)

    async def heartbeat(self, member_id: str, instance_id: str, generation: int) -> int:
        """Send a heartbeat of a classic member."""
        fields: dict[str, Any] = {
            "group_id": self._group,
            "generation_id": generation,
            "member_id": member_id,
        }
        return _code(await self._ask(HEARTBEAT, fields, instance_id))

    async def leave(self, member_id: str, instance_id: str) -> int:
        """Leave the group."""
        leaver: dict[str, Any] = {"member_id": member_id, "group_instance_id": instance_id or None}
        fields = {"group_id": self._group, "members": [leaver]}
        answer = await self._ask(LEAVE_GROUP, fields)
        return _code(answer) or next((_code(one) for one in answer.members), NONE)

    async def beat(self, member_id: str, epoch: int, instance_id: str = "", **said: Any) -> Any:
        """Send a heartbeat of KIP-848 and return the response; `said` are fields of the request."""
        fields: dict[str, Any] = {
            "group_id": self._group,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": instance_id or None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        return await self._ask(CONSUMER_HEARTBEAT, fields | said)

    # --- offsets -------------------------------------------------------------------------------

    async def commit(
        self,
        member_id: str,
        instance_id: str,
        epoch: int,
        offsets: Mapping[Place, tuple[int, str]],
        *,
        retention_ms: int | None = None,
    ) -> dict[Place, int]:
        """Commit offsets with metadata; return the code of each.

        `retention_ms` needs a version before 5.
        """
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), (offset, note) in offsets.items():
            part = {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": note,
            }
            topics.setdefault(topic, []).append(part)
        fields: dict[str, Any] = {
            "group_id": self._group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        if retention_ms is not None:
            assert self.versions[OFFSET_COMMIT] <= WITH_RETENTION[1], (
                "this version has no retention time"
            )
            fields["retention_time"] = retention_ms
        answer = await self._ask(OFFSET_COMMIT, fields, instance_id)
        return {
            (topic.name, part.partition_index): _code(part)
            for topic in answer.topics
            for part in topic.partitions
        }

    async def fetch(
        self, places: Sequence[Place], *, member_id: str = "", epoch: int = -1
    ) -> tuple[int, dict[Place, FoundOffset]]:
        """Fetch committed offsets; return the first error code, and the offsets."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        topics = [{"name": name, "partition_indexes": some} for name, some in by_topic.items()]
        version = self.versions[OFFSET_FETCH]
        fields: dict[str, Any] = {"group_id": self._group, "topics": topics}
        if version >= OF_MANY_GROUPS:
            group: dict[str, Any] = {"group_id": self._group, "topics": topics}
            group |= {"member_id": member_id or None, "member_epoch": epoch}
            fields = {"groups": [group if version > OF_MANY_GROUPS else _plain(group)]}
        if version >= STABLE_SINCE:
            fields["require_stable"] = self._is_stable
        answer = await self._ask(OFFSET_FETCH, fields)
        found = answer if version < OF_MANY_GROUPS else answer.groups[0]
        offsets = {
            (topic.name, part.partition_index): FoundOffset(
                int(part.committed_offset), part.metadata or ""
            )
            for topic in found.topics
            for part in topic.partitions
        }
        codes = [_code(part) for topic in found.topics for part in topic.partitions]
        return _code(found) or next(filter(None, codes), NONE), offsets

    async def delete_group(self) -> int:
        """Delete the group."""
        answer = await self._ask(DELETE_GROUPS, {"groups_names": [self._group]})
        return _code(answer.results[0])

    # --- inside --------------------------------------------------------------------------------

    async def _ask(
        self,
        key: int,
        fields: dict[str, Any],
        instance_id: str = "",
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        if key in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, OFFSET_COMMIT):
            fields["group_instance_id"] = instance_id or None
        link = await self._linked()
        try:
            answer = await link.ask(
                key, self.versions[key], fields, timeout_ms=timeout_ms or self._timeout_ms
            )
        except QuorumlogError:
            self.close()
            raise
        if any(code in ELSEWHERE for code in codes_of(answer)):
            self.close()  # and look up the coordinator again
        return answer

    async def _linked(self) -> KafkaLink:
        """Return the connection to the coordinator; raises QuorumlogError."""
        async with self._opening:
            if self._link is None or self._link.is_over:
                self._link = await KafkaLink.open(
                    self._runtime, await self._find(), f"member of {self._group}"
                )
            return self._link

    async def _find(self) -> str:
        """Look up the coordinator."""
        link = await KafkaLink.open(self._runtime, self._client.anybody(), "looking")
        try:
            answer = await link.ask(
                FIND_COORDINATOR,
                self.versions[FIND_COORDINATOR],
                {"key_type": 0, "coordinator_keys": [self._group]},
                timeout_ms=self._timeout_ms,
            )
        finally:
            link.end()
        found = answer.coordinators[0]
        if found.error_code:
            raise ConnectionFailed(f"no coordinator: error {int(found.error_code)}")
        return f"{found.host}:{found.port}"


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if not name.startswith("member")}


def _code(part: Any) -> int:
    return int(part.error_code)


def codes_of(answer: Any) -> list[int]:
    """Return the error codes of a response that concern the coordinator: of a protocol response,
    or of a result of the methods here."""
    if isinstance(answer, int):
        return [answer]
    if isinstance(answer, tuple):
        return [code for code in answer if isinstance(code, int)]
    if isinstance(answer, dict):
        return [code for code in answer.values() if isinstance(code, int)]
    if hasattr(answer, "error_code"):
        return [_code(answer)]
    if hasattr(answer, "groups"):
        return [_code(one) for one in answer.groups]
    if hasattr(answer, "results"):
        return [_code(one) for one in answer.results]
    return [_code(part) for topic in answer.topics for part in topic.partitions]
