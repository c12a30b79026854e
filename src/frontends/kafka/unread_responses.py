"""The bytes of large responses that clients do not read, bounded for each user and for all."""

from collections import Counter
from typing import Protocol

from .api import Client


class RespondingConnection(Protocol):
    """A connection that ends if its client does not read its responses."""

    client: Client

    def end_unread(self, size: int) -> None:
        """End the connection, with `size` unread bytes."""


class UnreadBytes:
    """The unread bytes by connection. Ranges of files do not count: they take no memory."""

    def __init__(self, user_bytes_max: int, bytes_max: int) -> None:
        self._user_bytes_max = user_bytes_max
        self._bytes_max = bytes_max
        self._by_connection: Counter[RespondingConnection] = Counter()
        self._bytes = 0

    def add(self, connection: RespondingConnection, size: int) -> None:
        """Count a response."""
        self._by_connection[connection] += size
        self._bytes += size

    def remove(self, connection: RespondingConnection, size: int) -> None:
        """Count a response that was sent, unless the connection was discarded."""
        if connection in self._by_connection:
            self._by_connection[connection] -= size
            self._bytes -= size
            if not self._by_connection[connection]:
                del self._by_connection[connection]

    def discard(self, connection: RespondingConnection) -> None:
        """Remove an ended connection."""
        self._bytes -= self._by_connection.pop(connection, 0)

    def enforce(self) -> None:
        """While a user, or all of them, have too many unread bytes, end the connection with the
        most of the user with the most."""
        while self._bytes > self._user_bytes_max:
            by_user: Counter[str] = Counter()
            for connection, size in self._by_connection.items():
                by_user[connection.client.identity.principal] += size
            user, unread = by_user.most_common(1)[0]
            if unread <= self._user_bytes_max and self._bytes <= self._bytes_max:
                return
            own = {
                connection: size
                for connection, size in self._by_connection.items()
                if connection.client.identity.principal == user
            }
            largest = max(own, key=own.__getitem__)
            self.discard(largest)
            largest.end_unread(own[largest])
