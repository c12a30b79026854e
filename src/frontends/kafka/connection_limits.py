"""The limits of connections: of all clients, of each listener, of each address."""

from collections import Counter
from typing import Final, Protocol

from ...errors import Overloaded
from ...runtime.client_bounds import ClientEntries, address_block
from .api import Client
from .config import KafkaConfig

STRANGERS_SHARE: Final = 100
"""Beyond a limit, one in so many connections may log in: its client is not known before."""

_Scope = tuple[str, str]  # listener and address; "": all of them


class LimitedConnection(Protocol):
    """A connection that ends for another one at a limit."""

    client: Client

    def end_stranger(self) -> None:
        """End the connection of a client that is not authenticated."""

    def end_at_limit(self) -> None:
        """End the connection of the user with the most of them."""


class ConnectionLimits:
    """The open connections: of strangers, which are not authenticated yet, and of users.

    At a limit a stranger ends only for another stranger, and the connection of a user only for one
    of a user with fewer. A few strangers are accepted beyond it, so that such a user can log in.
    """

    def __init__(self, settings: KafkaConfig) -> None:
        self._settings = settings
        # by listener and address
        self._strangers: dict[_Scope, dict[LimitedConnection, None]] = {}
        self._stranger_counts: Counter[_Scope] = Counter()
        self._users: dict[_Scope, ClientEntries[LimitedConnection]] = {}

    def count_of(self, host: str) -> int:
        """Return the number of connections of an address."""
        return self._count(("", address_block(host)))

    def has_room(self, listener: str, host: str, *, user: str | None) -> bool:
        """Return True if a connection may be accepted. At a limit the oldest stranger of the
        address with the most of them may end for it. `user` is None for a stranger."""
        limits = self._limits(listener, address_block(host))
        full = [(scope, limit) for scope, limit in limits if self._count(scope) >= limit]
        if not full:
            return True
        if user is None and all(
            self._stranger_counts[scope] < max(1, limit // STRANGERS_SHARE) for scope, limit in full
        ):
            return True
        if user is not None:
            full_of_users = [scope for scope, limit in full if self._user_count(scope) >= limit]
            if full_of_users:
                return all(self._has_more(scope, user) for scope in full_of_users)
        counted = [
            (len(strangers), key)
            for key, strangers in self._strangers.items()
            if all(_contains(scope, key) for scope, _ in full)
        ]
        if not counted:
            return False
        oldest = next(iter(self._strangers[max(counted)[1]]))
        self._discard_stranger(oldest)
        oldest.end_stranger()
        return True

    def add_stranger(self, connection: LimitedConnection) -> None:
        """Add a connection that is not authenticated yet."""
        key = _key(connection)
        self._strangers.setdefault(key, {})[connection] = None
        for scope, _ in self._limits(*key):
            self._stranger_counts[scope] += 1

    def authenticated(self, connection: LimitedConnection) -> None:
        """Count a connection as one of its user. At a limit the oldest connection of the user with
        the most of them ends for it. Raises Overloaded if its own user has as many."""
        self._discard_stranger(connection)
        listener, host = _key(connection)
        principal = connection.client.identity.principal
        limits = self._limits(listener, host)
        for scope, _ in limits:
            self._users.setdefault(scope, ClientEntries()).add(connection, principal)
        for scope, limit in limits:
            users = self._users[scope]
            if len(users) <= limit:
                continue
            most = users.of_most(principal)
            if most is None:
                count = len(users)
                self._discard_user(connection)
                raise Overloaded(
                    f"{principal}: the limit of {limit} connections is reached ({count} with this"
                    " one), and no user has more of them; close connections, or raise"
                    " kafka.connections.max"
                )
            oldest = next(iter(most))
            self._discard_user(oldest)
            oldest.end_at_limit()

    def discard(self, connection: LimitedConnection) -> None:
        """Remove an ended connection."""
        self._discard_stranger(connection)
        self._discard_user(connection)

    def _limits(self, listener: str, host: str) -> tuple[tuple[_Scope, int], ...]:
        """Return the limits for a connection, the narrowest first."""
        settings = self._settings
        return (
            (("", host), settings.address_connections_max),
            ((listener, ""), settings.listener_connections_max),
            (("", ""), settings.connections_max),
        )

    def _count(self, scope: _Scope) -> int:
        return self._user_count(scope) + self._stranger_counts[scope]

    def _user_count(self, scope: _Scope) -> int:
        return len(self._users.get(scope, ()))

    def _has_more(self, scope: _Scope, user: str) -> bool:
        """Return True if another user has more connections than this one with one more."""
        users = self._users[scope]
        most = users.of_most(user)
        return most is not None and len(most) > users.count_of(user) + 1

    def _discard_stranger(self, connection: LimitedConnection) -> None:
        key = _key(connection)
        strangers = self._strangers.get(key, {})
        if connection not in strangers:
            return
        del strangers[connection]
        if not strangers:
            del self._strangers[key]
        for scope, _ in self._limits(*key):
            self._stranger_counts[scope] -= 1
            if not self._stranger_counts[scope]:
                del self._stranger_counts[scope]

    def _discard_user(self, connection: LimitedConnection) -> None:
        for scope, _ in self._limits(*_key(connection)):
            users = self._users.get(scope)
            if users is not None:
                users.discard(connection)
                if not users:
                    del self._users[scope]


def _key(connection: LimitedConnection) -> _Scope:
    client = connection.client
    return client.listener, address_block(client.identity.host)


def _contains(scope: _Scope, key: _Scope) -> bool:
    """Return True if connections of a listener and an address are in a scope."""
    return all(part in ("", of_key) for part, of_key in zip(scope, key, strict=True))
