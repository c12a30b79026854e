"""The interface of all clients under test, with one driver for each client.

A driver lists the abilities that its client lacks, with the reason: such a test is *excluded* for
that client, never counted as passed. Errors of brokers are raised as `Refused` with the protocol's
error code.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

WITHIN_S: Final = 30.0
"""The time limit of any operation of a client."""

HEARTBEAT_MS: Final = 300
"""The heartbeat interval of members of classic groups."""

Acks: TypeAlias = Literal["0", "1", "all"]
Codec: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
GroupProtocol: TypeAlias = Literal["classic", "consumer"]
Place: TypeAlias = int | Literal["beginning", "end"]
Starts: TypeAlias = Mapping[int, Place]
"""The start position, by partition."""
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Refused(Exception):
    """An error response of a broker with its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record for a producer."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None  # None: the client's clock
    partition: int | None = 0  # None: the client's partitioner chooses


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The position of a record, from its acknowledgement."""

    partition: int
    offset: int | None  # None: unknown to the client (acks=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record that a consumer returned."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The metadata of one partition."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The metadata of the cluster."""

    cluster_id: str | None
    controller: int
    addresses: Mapping[int, str]  # by broker, "host:port"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = 1
    replication: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()  # by partition, instead of the two numbers


class Writer(Protocol):
    """An open producer."""

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        """Send the records and wait for all of them. Return their positions in order, or nothing if
        the client does not report each. Raise Refused if one was rejected."""


class TransactionalWriter(Writer, Protocol):
    """An open producer with a transactional id; it fences its predecessors. Every call raises
    Refused."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send_offsets(self, member: "Member", topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of the member's group, by partition, with the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""


class Reader(Protocol):
    """An open consumer of assigned partitions, without a group."""

    def seek(self, partition: int, to: Place) -> None:
        """Continue from this position."""

    def pause(self, partition: int) -> None:
        """Return no records of this partition."""

    def resume(self, partition: int) -> None:
        """Return records of this partition again."""

    def poll(self, within_s: float) -> list[Found]:
        """Return the next records; empty if there are none in time. Raise Refused."""


class Member(Protocol):
    """An open consumer of a topic in a group; it commits only by `commit`."""

    def poll(self, within_s: float) -> list[Found]:
        """Return the next records; empty if there are none in time. Raise Refused."""

    def owned(self) -> set[int]:
        """Return its partitions; `poll` updates them."""

    def commit(self) -> None:
        """Commit the positions of the returned records. Raise Refused."""


class Admin(Protocol):
    """An open client for administration; every call raises Refused."""

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None: ...
    def delete(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...
    def describe(self, topic: str) -> dict[int, Replicas]: ...
    def brokers(self) -> Brokers: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def delete_records(self, topic: str, before: Mapping[int, int]) -> None: ...
    def configs(self, topic: str) -> dict[str, str | None]: ...
    def alter_configs(self, topic: str, values: Mapping[str, str]) -> None:
        """Set these and keep the others, or set exactly these, depending on the client."""

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None: ...
    def elect_preferred(self, topic: str, partition: int) -> None: ...


class Driver(Protocol):
    """One client."""

    @property
    def name(self) -> str:
        """The suite."""

    @property
    def version(self) -> str:
        """The version of the client."""

    @property
    def cannot(self) -> Mapping[str, str]:
        """The abilities that the client lacks, with reasons; the keys are those of `ABILITIES`."""

    def writer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> AbstractContextManager[Writer]:
        """Return a producer."""

    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> AbstractContextManager[TransactionalWriter]:
        """Return a producer of transactions that time out after `timeout_ms`."""

    def reader(
        self,
        topic: str,
        starts: Starts,
        *,
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        is_committed: bool = False,
    ) -> AbstractContextManager[Reader]:
        """Return a consumer of these partitions from these positions; `fetch_bytes` bounds a
        response and each partition's part, `wait_ms` the broker's wait for records. With
        `is_committed` it reads at isolation level read_committed."""

    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> AbstractContextManager[Member]:
        """Return a member of a group, which begins at the committed offset, otherwise at the
        beginning."""

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        """Return the first offset at or after a time in ms, -1 if there is none; or an end of the
        log."""

    def admin(self) -> AbstractContextManager[Admin]:
        """Return a client for administration."""


ABILITIES: Final = {
    "admin": "administration",
    "admin.assignments": "topics with replicas chosen by hand",
    "admin.configs": "reading and altering configs",
    "admin.delete_records": "deleting records",
    "admin.elect": "electing leaders",
    "admin.isr": "showing the replicas in sync",
    "admin.partitions": "adding partitions",
    "admin.reassign": "moving partitions",
    "admin.validate": "checking a topic without making it",
    "empty": "telling an empty value from none",
    "errors": "telling which error a broker gave",
    "fetch_bytes": "bounding what a fetch brings",
    "groups": "consuming in groups",
    "groups.consumer": "groups of KIP-848",
    "headers": "headers",
    "headers.null": "headers without a value",
    "idempotent": "an idempotent producer",
    "large": "records of nearly a megabyte",
    "lz4": "lz4",
    "null": "records without a key and a value",
    "offsets": "telling a producer's offsets",
    "pause": "pausing a partition",
    "snappy": "snappy",
    "timestamps": "choosing a record's time",
    "times": "looking offsets up by time",
    "transactions": "transactions",
    "wait": "waiting for records",
    "zstd": "zstd",
}


def beginnings(partitions: int) -> Starts:
    """Return the beginnings of partitions [0, partitions)."""
    return {partition: "beginning" for partition in range(partitions)}


def read(reader: Reader, count: int, *, within_s: float = WITHIN_S) -> list[Found]:
    """Return at least `count` records. Raise AssertionError if they do not arrive in time."""
    found: list[Found] = []
    end = time.monotonic() + within_s
    while len(found) < count:
        left = end - time.monotonic()
        assert left > 0, f"{len(found)} of {count} records in {within_s} s, the last {found[-1:]}"
        found += reader.poll(min(left, 1.0))
    return found
