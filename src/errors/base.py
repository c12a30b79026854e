"""The base classes of operational errors: those to catch."""

from typing import ClassVar


class QuorumlogError(Exception):
    """An operational error with a message that states the problem and the remedy.

    `topic` and `partition` are those that the error concerns, if any. A class without a `name` of
    its own is a base class: it is caught, never raised.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    status: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, topic: str = "", partition: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition

    def __init_subclass__(cls, *, name: str = "", code: int = -1, status: str = "") -> None:
        if name:
            cls.code, cls.name, cls.status = code, name, status

    def __str__(self) -> str:
        if not self.topic:
            return self.message
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{where}: {self.message}"


class RetriableError(QuorumlogError):
    """A retry may succeed. `retriable` is true for these errors only."""

    retriable: ClassVar[bool] = True


class TransportError(QuorumlogError):
    """A connection or a stream failed, or an address is in use."""


class GroupError(QuorumlogError):
    """A consumer group refused a request or a member."""


class AdminError(QuorumlogError):
    """A request about topics, brokers, configs or voters was refused, or a setting of a node, a
    client or the Spark source is invalid."""


class StorageError(QuorumlogError):
    """A disk or a data directory failed."""
