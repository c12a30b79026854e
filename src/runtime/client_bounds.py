"""Bounds of what the clients of a node hold, by principal. Pure."""

from collections import Counter
from typing import Final

from ..errors import Overloaded

UNREAD_BYTES: Final = (256 << 20, 512 << 20)  # of responses, for each principal, in all


class ClientBytes:
    """The bytes of responses that clients do not read, bounded for each client and for all."""

    def __init__(self, client_bytes_max: int, bytes_max: int) -> None:
        self._client_bytes_max = client_bytes_max
        self._bytes_max = bytes_max
        self._by_client: Counter[str] = Counter()
        self._bytes = 0

    def has_room(self, client: str, size: int) -> bool:
        """Return True if `size` bytes more are within the limits."""
        return (
            self._by_client[client] + size <= self._client_bytes_max
            and self._bytes + size <= self._bytes_max
        )

    def check(self, client: str, size: int) -> None:
        """Raise Overloaded if there is no room for `size` bytes."""
        if not self.has_room(client, size):
            raise Overloaded(
                f"{self._by_client[client]} bytes of responses to {client}, and {self._bytes} in"
                f" all, are not read yet; the limits are {self._client_bytes_max} and"
                f" {self._bytes_max}; read responses at once, or request less"
            )

    def add(self, client: str, size: int) -> None:
        """Count `size` bytes. Raise Overloaded at a limit."""
        self.check(client, size)
        self._by_client[client] += size
        self._bytes += size

    def remove(self, client: str, size: int) -> None:
        """Count `size` bytes less."""
        self._bytes -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]
