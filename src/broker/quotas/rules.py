"""Selection of the quota of a client.

For each key, the first of these entities that has a value counts (KIP-257):

    user and client id by name      user by name, any client id        user by name
    any user, client id by name     any user and any client id         any user
    client id by name               any client id

in reading order. A quota of a user is shared by all client ids of that user, a quota of a client id
by all users with that client id, and one of both belongs to the pair. "Any user" is a default that
applies to each user separately.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...metadata.client_quotas import CLIENT_ID, USER, QuotaEntity


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The quota of a client, and the clients that share it."""

    value: float  # as in the metadata
    user: str | None  # None: all users of the client id
    client_id: str | None  # None: all client ids of the user


class QuotaRules:
    """The configured quotas."""

    __slots__ = ("_quotas", "keys")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._quotas = quotas
        self.keys = frozenset(key for values in quotas.values() for key in values)

    def share(self, key: str, *, user: str, client_id: str) -> Share | None:
        """Return the quota of a client for a key, or None."""
        if key not in self.keys:
            return None
        for entity in _entities(user, client_id):
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                types = dict(entity)
                return Share(
                    value=value,
                    user=user if USER in types else None,
                    client_id=client_id if CLIENT_ID in types else None,
                )
        return None


def _entities(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Yield the entities that match the client, the most specific first."""
    clients = (CLIENT_ID, client_id), (CLIENT_ID, None)
    for of_user in (USER, user), (USER, None):
        for of_client in clients:
            yield of_client, of_user
        yield (of_user,)
    for of_client in clients:
        yield (of_client,)
