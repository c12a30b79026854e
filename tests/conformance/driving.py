"""What the suites ask of a client, whichever it is; each client has a driver that does it its way.

A driver says what its client cannot do, and why: such a test is *excluded* for that client, never
counted as passed. Errors of brokers come out as `Refused`, with the number of the protocol.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

WITHIN_S: Final = 30.0
"""How long a client may take for anything that must come to an end."""

HEARTBEAT_MS: Final = 300
"""How often members of classic groups say that they live, and hear of changes."""

Acks: TypeAlias = Literal["0", "1", "all"]
Codec: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
GroupProtocol: TypeAlias = Literal["classic", "consumer"]
Place: TypeAlias = int | Literal["beginning", "end"]
Starts: TypeAlias = Mapping[int, Place]
"""Where reading begins, by partition."""
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Refused(Exception):
    """A broker refused; `code` is the protocol's number for it."""

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
    """Where a record is, as its producer was told."""

    partition: int
    offset: int | None  # None: the client was not told (acks=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record as a consumer handed it out."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """One partition as the metadata has it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The cluster as a client sees it."""

    cluster_id: str | None
    controller: int
    addresses: Mapping[int, str]  # by broker, "host:port"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that is to be made."""

    name: str
    partitions: int = 1
    replication: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()  # by partition; in place of the two numbers


class Writer(Protocol):
    """An open producer."""

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        """Send the records and wait for all of them; returns where they are, in their order, or
        nothing where the client does not tell of each. Raises Refused when one was not taken."""


class TransactionalWriter(Writer, Protocol):
    """An open producer with a transactional id, whose predecessors are fenced. Every call raises
    Refused."""

    def begin(self) -> None:
        """Begin a transaction; records are sent in one."""

    def send_offsets(self, member: "Member", topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of the member's group, by partition, with the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""


class Reader(Protocol):
    """An open consumer of partitions that it was assigned, without a group."""

    def seek(self, partition: int, to: Place) -> None:
        """Go on from there."""

    def pause(self, partition: int) -> None:
        """Hand out nothing of this partition."""

    def resume(self, partition: int) -> None:
        """Hand out this partition again."""

    def poll(self, within_s: float) -> list[Found]:
        """Return what comes next; empty when nothing does in time. Raises Refused."""


class Member(Protocol):
    """An open consumer of a topic in a group; it commits only when it is told to."""

    def poll(self, within_s: float) -> list[Found]:
        """Return what comes next; empty when nothing does in time. Raises Refused."""

    def owned(self) -> set[int]:
        """The partitions that it has been given, as far as it knows; `poll` learns of changes."""

    def commit(self) -> None:
        """Store how far it has handed records out. Raises Refused."""


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
        """Set these and leave the others, or set exactly these: what the client does."""

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None: ...
    def elect_preferred(self, topic: str, partition: int) -> None: ...


class Driver(Protocol):
    """One client."""

    @property
    def name(self) -> str:
        """The suite."""

    @property
    def version(self) -> str:
        """Of the client."""

    @property
    def cannot(self) -> Mapping[str, str]:
        """What the client has no way to do, and why; the words are those of `ABILITIES`."""

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
        """Return a consumer of these partitions from these places on; `fetch_bytes` bounds an
        answer and a partition's part of it, a broker waits `wait_ms` for something to send. With
        `is_committed` it reads at isolation level read_committed."""

    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> AbstractContextManager[Member]:
        """Return a consumer in a group, which begins where the group has stopped, else at the
        beginning."""

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        """Return the first offset at or after a time in ms, -1 when there is none; or an end."""

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
    """Partitions [0, partitions) from their beginning on."""
    return {partition: "beginning" for partition in range(partitions)}


def read(reader: Reader, count: int, *, within_s: float = WITHIN_S) -> list[Found]:
    """Return at least `count` records; raises AssertionError when they do not come in time."""
    found: list[Found] = []
    end = time.monotonic() + within_s
    while len(found) < count:
        left = end - time.monotonic()
        assert left > 0, f"{len(found)} of {count} records in {within_s} s, the last {found[-1:]}"
        found += reader.poll(min(left, 1.0))
    return found
