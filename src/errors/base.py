"""The base class of operational errors."""

from typing import ClassVar


class QuorumlogError(Exception):
    """An operational error with a message that states the problem and the remedy.

    `topic` and `partition` are those that the error concerns, if any.
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

    def __init_subclass__(
        cls, *, code: int = -1, name: str, status: str, retriable: bool = False
    ) -> None:
        cls.code, cls.name, cls.status, cls.retriable = code, name, status, retriable

    def __str__(self) -> str:
        if not self.topic:
            return self.message
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{where}: {self.message}"
