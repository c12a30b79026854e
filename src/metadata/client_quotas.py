"""THE table of quotas of clients, and whom one can be for (KIP-13, KIP-124, KIP-257, KIP-546).

An entity is a user, a client id, or both; each part names one, or is the default of all that no
other entity names. Which entity counts for a client is said where quotas are enforced.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from immutables import Map

from ..errors import InvalidRequest
from ..proto import metadata_records_pb2 as pb

USER: Final = "user"
CLIENT_ID: Final = "client-id"
ENTITY_TYPES: Final = (CLIENT_ID, USER)
"""By name, ascending."""

NAME_MAX: Final = 255
"""Characters of a user or a client id that a quota is for."""

ENTITIES_MAX: Final = 10_000
"""Who may have quotas at a time; each broker holds them, and tells them in one answer."""

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
    for an unknown key (naming the known), a key given twice, and a value that is none."""
    checked: dict[str, float | None] = {}
    for key, value in changes:
        row = _known(key)
        if key in checked:
            raise InvalidRequest(f"{key} is given twice; give each quota once")
        checked[key] = None if value is None else _check_value(row, value)
    return dict(sorted(checked.items()))


def sorted_entities(quotas: ClientQuotas) -> list[QuotaEntity]:
    """Return who has quotas: by type, then by name, the default behind the named ones."""
    return sorted(
        quotas, key=lambda entity: [(kind, name is None, name or "") for kind, name in entity]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFilter:
    """What one part of an entity has to be."""

    type: str
    is_any: bool = False  # whoever it names, the default too
    name: str | None = None  # else this one; None: the default


def check_filters(filters: Sequence[EntityFilter]) -> None:
    """Raise InvalidRequest for types that no entity has and for two filters of one type."""
    types = [each.type for each in filters]
    for kind in types:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(
                f"a filter is for {kind[:NAME_MAX]!r}; give {USER}, {CLIENT_ID}, or both"
            )
        if types.count(kind) > 1:
            raise InvalidRequest(f"two filters are for {kind}; give one")


def matching_entities(
    quotas: ClientQuotas, filters: Sequence[EntityFilter], *, strict: bool
) -> list[QuotaEntity]:
    """Return who has quotas and what every filter asks for, in order; with `strict` only those who
    have no part besides."""
    return [
        entity
        for entity in sorted_entities(quotas)
        if all(_has_part(entity, each) for each in filters)
        and not (strict and len(entity) > len(filters))
    ]


def entity_text(entity: QuotaEntity) -> str:
    """Return whom a quota is for, in words: "client-id app, the default user"."""
    return ", ".join(
        f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in entity
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> pb.MetadataRecord:
    """Return the record by which an entity has a quota from now on; None: has it no more."""
    return pb.MetadataRecord(
        client_quota=pb.ClientQuotaRecord(entity=entity_parts(entity), key=key, value=value)
    )


def entity_parts(entity: QuotaEntity) -> list[pb.QuotaEntity]:
    """Return an entity as it travels."""
    return [pb.QuotaEntity(type=kind, name=name) for kind, name in entity]


def _has_part(entity: QuotaEntity, wanted: EntityFilter) -> bool:
    return any(
        kind == wanted.type and (wanted.is_any or name == wanted.name) for kind, name in entity
    )


def _known(key: str) -> Quota:
    row = QUOTAS.get(key)
    if row is None:
        raise InvalidRequest(f"there is no quota {key[:NAME_MAX]!r}; known are {', '.join(QUOTAS)}")
    return row


def _check_value(row: Quota, value: float) -> float:
    is_fit = math.isfinite(value) and value > 0
    if is_fit and row.is_whole:
        is_fit = value <= WHOLE_MAX and value == int(value)
    if not is_fit:
        raise InvalidRequest(f"{row.key} is {value:g}; give {row.takes}")
    return float(value)
