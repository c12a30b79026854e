"""The requests of members of groups: one connection each, one request at a time."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.kafka_wire.wire import frame_of, reader_of, writer_of
from benchmarks.raft.processes import Refused

COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC = (8, 9), (11, 9), (12, 4), (13, 5), (14, 5)
COORDINATOR, ALTER_CONFIGS, CONSUMER_HEARTBEAT = (10, 6), (44, 1), (68, 1)
METADATA: Final = (3, 12)
"""Keys and versions that every broker here supports: the newest with topic names in commits, and
the first of Metadata with topic ids in responses to requests by name."""

NOT_READY: Final = frozenset({14, 15, 16})  # loading, not available, not coordinator
REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER, ILLEGAL_GENERATION, MEMBER_ID_REQUIRED = 27, 25, 22, 79
FENCED_MEMBER_EPOCH: Final = 110

ANSWER_S: Final = 120.0
SESSION_MS: Final = 1_800_000  # the maximum of brokers: no session expires on a busy machine
REBALANCE_MS: Final = 300_000


class Caller:
    """A connection to a broker on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0

    @classmethod
    async def open(cls, port: int) -> "Caller":
        """Connect. Raise OSError."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def ask(self, kind: tuple[int, int], **fields: Any) -> Any:
        """Return the message of the response to a request of these fields. Raise OSError,
        Refused."""
        self._asked += 1
        frame = frame_of(kind, fields, correlation_id=self._asked)
        return decoded(kind, await self.exchange(frame))

    async def exchange(self, frame: bytes) -> bytes:
        """Return the response to a frame, both with their headers. Raise OSError, Refused."""
        self._writer.write(frame)
        try:
            async with asyncio.timeout(ANSWER_S):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the broker hung up") from None
        except TimeoutError:
            raise Refused(f"a broker does not answer within {ANSWER_S:.0f} s") from None


def decoded(kind: tuple[int, int], answer: bytes) -> Any:
    """Return the message of a response."""
    begin = 5 if writer_of(*kind)[0].__flexible__ else 4
    message, end = reader_of(*kind)(answer[begin:], 0)
    assert end == len(answer) - begin, f"{len(answer) - begin - end} bytes after a response"
    return message


# --- fields of the requests ----------------------------------------------------------------------


def join_fields(group: str, topic: str, member_id: str) -> dict[str, Any]:
    """Return the fields of JoinGroup of a classic consumer of one topic."""
    return {
        "group_id": group,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": REBALANCE_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
        "reason": None,
    }


def sync_fields(
    group: str, generation: int, member_id: str, parts: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the fields of SyncGroup; the leader sends all assignments."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": name, "assignment": assignment} for name, assignment in parts.items()
        ],
    }


def heartbeat_fields(group: str, generation: int, member_id: str) -> dict[str, Any]:
    """Return the fields of a classic heartbeat."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
    }


def leave_fields(group: str, member_id: str) -> dict[str, Any]:
    """Return the fields of a classic LeaveGroup."""
    member = {"member_id": member_id, "group_instance_id": None, "reason": None}
    return {"group_id": group, "members": [member]}


def consumer_fields(group: str, member_id: str, epoch: int, **changed: Any) -> dict[str, Any]:
    """Return the fields of a heartbeat of KIP-848; fields that are not `changed` have their
    defaults."""
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **changed,
    }


def commit_fields(
    group: str, generation: int, member_id: str, topic: str, partitions: Sequence[int]
) -> dict[str, Any]:
    """Return the fields of a commit with an offset for each of these partitions."""
    parts = [
        {
            "partition_index": number,
            "committed_offset": 1_000,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for number in partitions
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": parts}],
    }


def subscription(topic: str) -> bytes:
    """Return a ConsumerProtocolSubscription, version 0, of one topic."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """Return a ConsumerProtocolAssignment, version 0, of one topic."""
    name = topic.encode()
    head = struct.pack(f">hih{len(name)}s", 0, 1, len(name), name)
    return head + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)


def assigned(data: bytes) -> tuple[int, ...]:
    """Return the partitions of an assignment of one topic, or of none."""
    _, topics = struct.unpack_from(">hi", data)
    if not topics:
        return ()
    (name_size,) = struct.unpack_from(">h", data, 6)
    (count,) = struct.unpack_from(">i", data, 8 + name_size)
    return struct.unpack_from(f">{count}i", data, 12 + name_size)
