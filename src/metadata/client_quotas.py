"""The table of client quotas and their entities (KIP-13, KIP-124, KIP-257, KIP-546).

An entity is a user, a client id, or both. Each part is a name, or the default for all names without
an entity of their own. The enforcement of quotas defines which entity applies to a client.
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
"""The maximum length of a user or client id, in characters."""

ENTITIES_MAX: Final = 10_000
"""The maximum number of entities, which each broker holds and returns in one response."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of type and name by ascending type; a name of None is the default."""

ClientQuotas: TypeAlias = Map[QuotaEntity, Map[str, float]]
"""Quotas by entity and key, of entities with at least one quota."""

WHOLE_MAX: Final = float(2**53)
"""The largest float that represents every smaller whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One row of the table."""

    key: str
    unit: str
    is_whole: bool  # True: whole numbers only
    doc: str

    @property
    def takes(self) -> str:
        """The valid values: "a whole number above 0 (bytes a second)"."""
        return f"a {'whole ' if self.is_whole else ''}number above 0 ({self.unit})"


QUOTAS: Final[Mapping[str, Quota]] = {
    row.key: row
    for row in (
        Quota(
            key=CONSUMER_BYTE_RATE,
            unit="bytes a second",
            is_whole=True,
            doc="Limit of the bytes that fetches read from each broker.",
        ),
        Quota(
            key=PRODUCER_BYTE_RATE,
            unit="bytes a second",
            is_whole=True,
            doc="Limit of the bytes of produce requests to each broker.",
        ),
        Quota(
            key=REQUEST_PERCENTAGE,
            unit="percent of a thread",
            is_whole=False,
            doc="Limit of the time that requests take of each broker's request thread.",
        ),
    )
}
"""By key, ascending."""


def check_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these parts, sorted by type. Raise InvalidRequest without parts, for an
    unknown or repeated type, and for a name that is empty or too long."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(
                f"unknown quota entity {kind[:NAME_MAX]!r}; give a {USER}, a {CLIENT_ID}, or both"
            )
        if kind in named:
            raise InvalidRequest(f"the quota entity has more than one {kind}; give one")
        if name is not None and not 1 <= len(name) <= NAME_MAX:
            raise InvalidRequest(
                f"the {kind} of the quota has {len(name)} characters; give 1..{NAME_MAX}, or the "
                "default"
            )
        named[kind] = name
    if not named:
        raise InvalidRequest(f"the quota has no entity; give a {USER}, a {CLIENT_ID}, or both")
    return tuple(sorted(named.items()))


def check_quota_changes(changes: Iterable[tuple[str, float | None]]) -> dict[str, float | None]:
    """Return the changes of one entity's quotas by ascending key; None deletes a quota. Raise
    InvalidRequest for an unknown or repeated key and for an invalid value."""
    checked: dict[str, float | None] = {}
    for key, value in changes:
        row = _known(key)
        if key in checked:
            raise InvalidRequest(f"{key} is given more than once; give each quota once")
        checked[key] = None if value is None else _check_value(row, value)
    return dict(sorted(checked.items()))


def sorted_entities(quotas: ClientQuotas) -> list[QuotaEntity]:
    """Return the entities with quotas, sorted by type, then by name; the default comes last."""
    return sorted(
        quotas, key=lambda entity: [(kind, name is None, name or "") for kind, name in entity]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFilter:
    """A condition on one part of an entity."""

    type: str
    is_any: bool = False  # any name, and the default
    name: str | None = None  # without is_any: this name; None: the default


def check_filters(filters: Sequence[EntityFilter]) -> None:
    """Raise InvalidRequest for an unknown or repeated type."""
    types = [each.type for each in filters]
    for kind in types:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(
                f"unknown filter type {kind[:NAME_MAX]!r}; give {USER}, {CLIENT_ID}, or both"
            )
        if types.count(kind) > 1:
            raise InvalidRequest(f"more than one filter for {kind}; give one")


def matching_entities(
    quotas: ClientQuotas, filters: Sequence[EntityFilter], *, strict: bool
) -> list[QuotaEntity]:
    """Return the entities with quotas that match every filter, sorted; with `strict`, only those
    without further parts."""
    return [
        entity
        for entity in sorted_entities(quotas)
        if all(_has_part(entity, each) for each in filters)
        and not (strict and len(entity) > len(filters))
    ]


def entity_text(entity: QuotaEntity) -> str:
    """Return an entity as text: "client-id app, the default user"."""
    return ", ".join(
        f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in entity
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> pb.MetadataRecord:
    """Return the record that sets a quota of an entity, or deletes it if `value` is None."""
    return pb.MetadataRecord(
        client_quota=pb.ClientQuotaRecord(entity=entity_parts(entity), key=key, value=value)
    )


def entity_parts(entity: QuotaEntity) -> list[pb.QuotaEntity]:
    """Return the messages of an entity's parts."""
    return [pb.QuotaEntity(type=kind, name=name) for kind, name in entity]


def _has_part(entity: QuotaEntity, wanted: EntityFilter) -> bool:
    return any(
        kind == wanted.type and (wanted.is_any or name == wanted.name) for kind, name in entity
    )


def _known(key: str) -> Quota:
    row = QUOTAS.get(key)
    if row is None:
        raise InvalidRequest(f"unknown quota {key[:NAME_MAX]!r}; quotas are {', '.join(QUOTAS)}")
    return row


def _check_value(row: Quota, value: float) -> float:
    is_valid = math.isfinite(value) and value > 0
    if is_valid and row.is_whole:
        is_valid = value <= WHOLE_MAX and value == int(value)
    if not is_valid:
        raise InvalidRequest(f"{row.key} is {value:g}; give {row.takes}")
    return float(value)
