"""THE table of quotas of clients, and whom one can be for (KIP-13, KIP-124, KIP-257, KIP-546).

An entity is a user, a client id, or both; each part names one, or is the default of all that no
other entity names. Which entity counts for a client is said where quotas are enforced.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from immutables import Map

from ..errors import InvalidRequest
from ..settings.rows import nearest

USER: Final = "user"
CLIENT_ID: Final = "client-id"
ENTITY_TYPES: Final = (CLIENT_ID, USER)
"""By name, ascending."""

NAME_MAX: Final = 255
"""Characters of a user or a client id that a quota is for."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of type and name by ascending type; a name of None is the default."""

ClientQuotas: TypeAlias = Map[QuotaEntity, Map[str, float]]
"""What is set: quotas by key for each entity that has any."""

WHOLE_MAX: Final = float(2**53)
"""Above it a number has no room for each unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One row of the table."""

    key: str
    unit: str
    is_whole: bool  # only whole numbers
    doc: str

    @property
    def takes(self) -> str:
        """What a value may be: "a whole number above 0 (bytes a second)"."""
        return f"a {'whole ' if self.is_whole else ''}number above 0 ({self.unit})"


QUOTAS: Final[Mapping[str, Quota]] = {
    row.key: row
    for row in (
        Quota(
            key=CONSUMER_BYTE_RATE,
            unit="bytes a second",
            is_whole=True,
            doc="Bytes of records that fetches may take from each broker.",
        ),
        Quota(
            key=PRODUCER_BYTE_RATE,
            unit="bytes a second",
            is_whole=True,
            doc="Bytes of produce requests that each broker takes.",
        ),
        Quota(
            key=REQUEST_PERCENTAGE,
            unit="percent of a thread",
            is_whole=False,
            doc="Time of each broker's serving thread that requests of any kind may take.",
        ),
    )
}
"""By key, ascending."""


def check_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return an entity with its parts in order; raises InvalidRequest for none, for an unknown
    type, for a type given twice, and for a name that no client can have."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(
                f"a quota is for {kind[:NAME_MAX]!r}; give a {USER}, a {CLIENT_ID}, or both"
            )
        if kind in named:
            raise InvalidRequest(f"a quota names two of type {kind}; give one")
        if name is not None and not 1 <= len(name) <= NAME_MAX:
            raise InvalidRequest(
                f"a quota is for a {kind} of {len(name)} characters; give 1..{NAME_MAX}, or the "
                "default"
            )
        named[kind] = name
    if not named:
        raise InvalidRequest(f"a quota is for nobody; give a {USER}, a {CLIENT_ID}, or both")
    return tuple(sorted(named.items()))


def check_quota_changes(changes: Iterable[tuple[str, float | None]]) -> dict[str, float | None]:
    """Return changes of one entity's quotas by ascending key, None: no quota; raises InvalidRequest
    for an unknown key (naming the nearest), a key given twice, and a value that is none."""
    checked: dict[str, float | None] = {}
    for key, value in changes:
        row = _known(key)
        if key in checked:
            raise InvalidRequest(f"{key} is given twice; give each quota once")
        checked[key] = None if value is None else _check_value(row, value)
    return dict(sorted(checked.items()))


def entity_order(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    """A key to sort entities by: by type, the default behind the named ones."""
    return tuple((kind, name is None, name or "") for kind, name in entity)


def sorted_quotas(quotas: ClientQuotas) -> list[tuple[QuotaEntity, list[tuple[str, float]]]]:
    """Return what is set by ascending entity and key."""
    return [(entity, sorted(quotas[entity].items())) for entity in sorted(quotas, key=entity_order)]


def entity_text(entity: QuotaEntity) -> str:
    """Return whom a quota is for, in words: "user alice, the default of client-id"."""
    return ", ".join(
        f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in entity
    )


def _known(key: str) -> Quota:
    row = QUOTAS.get(key)
    if row is None:
        near = nearest(key, QUOTAS) if len(key) <= NAME_MAX else None
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(QUOTAS)}"
        raise InvalidRequest(f"there is no quota {key[:NAME_MAX]!r}{hint}")
    return row


def _check_value(row: Quota, value: float) -> float:
    is_fit = math.isfinite(value) and value > 0
    if is_fit and row.is_whole:
        is_fit = value <= WHOLE_MAX and value == int(value)
    if not is_fit:
        raise InvalidRequest(f"{row.key} is {value:g}; give {row.takes}")
    return float(value)
