"""The protocol of a connection that is refused."""


class RefusedConnection:
    """Ignores all bytes until the end of an aborted connection, or until it is replaced."""

    def __init__(self) -> None:
        self._ignored = memoryview(bytearray(1))

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for ignored bytes."""
        return self._ignored

    def received(self, count: int) -> None:
        """Ignore received bytes."""

    def sent(self) -> None:
        """Ignore sent bytes."""

    def closed(self, error: Exception | None) -> None:
        """Ignore the end of the connection."""
