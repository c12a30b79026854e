"""What a program around the log can meet."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .base import QuorumlogError


class NotImplementedHere(
    QuorumlogError, code=35, name="UNSUPPORTED_VERSION", status="UNIMPLEMENTED"
):
    """The server does not offer this call. Ask it what it offers (reflection), or use a newer
    one."""


class PartitionerFailed(QuorumlogError, name="PARTITIONER_FAILED", status="INVALID_ARGUMENT"):
    """The producer's partitioner raised or named no partition of the topic; only the record that
    it was asked for is refused."""


class UndeliveredRecord(NamedTuple):
    """A record that a producer accepted and could not deliver."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    error: QuorumlogError  # why
    may_be_stored: bool  # an attempt got no answer: a copy may be in the log


class NotDelivered(QuorumlogError, name="NOT_DELIVERED", status="ABORTED"):
    """Records that a producer accepted were not delivered, and nobody has looked at their outcome.

    `count` is how many, `first` the first one's error (also the `__cause__`), `records` the records
    themselves, oldest first, to be sent again or put aside; only the first so many are kept, and
    `left_out` is how many more there were.
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
        """How many of `count` are not in `records`."""
        return self.count - len(self.records)


class RowsNotDelivered(NotDelivered, name="ROWS_NOT_DELIVERED", status="ABORTED"):
    """Rows of an Arrow source were not delivered; says which, by their number in the source.

    Every row is in exactly one place: stored (`ranges` says where, `stored_count` how many),
    `failed` (certainly not stored), `unknown` (an attempt got no answer: they may be stored), or
    not sent, from `unsent_from` on (None: the whole source was read).
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


class EnvironmentUnusable(
    QuorumlogError, name="ENVIRONMENT_UNUSABLE", status="FAILED_PRECONDITION"
):
    """Something around the program (Java, a package, a worker's Python) is missing or too old;
    says what, and how to put it right."""


class UnknownServerError(QuorumlogError, code=-1, name="UNKNOWN_SERVER_ERROR", status="INTERNAL"):
    """The server failed in a way it did not foresee; its log has the details."""
