"""Errors of the client program and its environment."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .base import QuorumlogError


class ClientClosed(QuorumlogError, name="CLIENT_CLOSED", status="CANCELLED"):
    """The client, producer or consumer was closed, by the program or by the end of its event loop.
    Create a new one."""


class NotImplementedHere(
    QuorumlogError, code=35, name="UNSUPPORTED_VERSION", status="UNIMPLEMENTED"
):
    """The server does not support this call. List its calls by reflection, or use a newer
    server."""


class PartitionerFailed(QuorumlogError, name="PARTITIONER_FAILED", status="INVALID_ARGUMENT"):
    """The producer's partitioner raised an error or returned an invalid partition. Only that record
    is refused."""


class UndeliveredRecord(NamedTuple):
    """A record that a producer accepted and did not deliver."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    error: QuorumlogError  # the reason
    may_be_stored: bool  # an attempt had no response: a copy may be in the log


class NotDelivered(QuorumlogError, name="NOT_DELIVERED", status="ABORTED"):
    """Records that a producer accepted were not delivered, and their outcome was not checked.

    `count` is their number and `first` the first one's error (also the `__cause__`). `records` has
    the oldest of them, to be sent again or stored elsewhere. `left_out` is the number of the
    others.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str = "",
        partition: int | None = None,
        count: int = 0,
        first: QuorumlogError | None = None,
        records: Sequence[UndeliveredRecord] = (),
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.count = count
        self.first = first
        self.records = tuple(records)
        self.__cause__ = first

    @property
    def left_out(self) -> int:
        """The number of undelivered records that are not in `records`."""
        return self.count - len(self.records)


class RowsNotDelivered(NotDelivered, name="ROWS_NOT_DELIVERED", status="ABORTED"):
    """Rows of an Arrow source were not delivered; the error has their row numbers.

    Every row is in exactly one set: stored (`ranges` has the offsets, `stored_count` the number),
    `failed` (not stored), `unknown` (an attempt had no response: they may be stored), or not sent,
    from `unsent_from` on (None: the whole source was read).
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str = "",
        partition: int | None = None,
        first: QuorumlogError | None = None,
        ranges: Sequence[Any] = (),
        stored_count: int = 0,
        failed: Sequence[int] = (),
        unknown: Sequence[int] = (),
        unsent_from: int | None = None,
    ) -> None:
        count = len(failed) + len(unknown)
        super().__init__(message, topic=topic, partition=partition, count=count, first=first)
        self.ranges = list(ranges)
        self.stored_count = stored_count
        self.failed = failed
        self.unknown = unknown
        self.unsent_from = unsent_from


class UndecodableValue(QuorumlogError, name="UNDECODABLE_VALUE", status="INVALID_ARGUMENT"):
    """The value of a record does not decode by the schema of a read. `offset` is the record's.
    Correct the schema or the producer, or drop such records or send them to a dead letter topic by
    the option `mode`."""

    def __init__(
        self, message: str, *, topic: str = "", partition: int | None = None, offset: int = -1
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.offset = offset


class EnvironmentUnusable(
    QuorumlogError, name="ENVIRONMENT_UNUSABLE", status="FAILED_PRECONDITION"
):
    """Something in the program's environment (Java, a package, a worker's Python) is missing or too
    old; the message has the remedy."""


class UnknownServerError(QuorumlogError, code=-1, name="UNKNOWN_SERVER_ERROR", status="INTERNAL"):
    """The server failed unexpectedly; its log has the details."""
