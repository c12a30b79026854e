"""Which quotas count for a client.

For each key the first of these that sets it (KIP-257), and no other:

    user and client id by name      user by name, any client id        user by name
    any user, client id by name     any user and any client id         any user
    client id by name               any client id

read line by line. A quota that only speaks of users is shared by all client ids of a user, one that
only speaks of client ids by all users of a client id, one that speaks of both belongs to the pair:
"any user" gives each user one of his own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...metadata.client_quotas import CLIENT_ID, USER, QuotaEntity


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A quota that counts for a client, and with whom it is shared."""

    value: float  # as in the metadata
    user: str | None  # None: with every user of the client id
    client_id: str | None  # None: with every client id of the user


class QuotaRules:
    """The quotas that are set."""

    __slots__ = ("_quotas", "keys")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._quotas = quotas
        self.keys = frozenset(key for values in quotas.values() for key in values)  # set by anyone

    def share(self, key: str, *, user: str, client_id: str) -> Share | None:
        """Return the quota of a key that counts for a client; None: it has none."""
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
    """Yield whom a quota that counts can be for, the first one first."""
    clients = (CLIENT_ID, client_id), (CLIENT_ID, None)
    for of_user in (USER, user), (USER, None):
        for of_client in clients:
            yield of_client, of_user
        yield (of_user,)
    for of_client in clients:
        yield (of_client,)
