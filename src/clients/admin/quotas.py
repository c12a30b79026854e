"""Client quotas: describe and alter."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import InvalidRequest
from ...proto import admin_pb2 as pb
from ...proto import metadata_records_pb2
from ...runtime.error_detail import decode_error
from ...services import ADMIN_ALTER_CLIENT_QUOTAS, ADMIN_DESCRIBE_CLIENT_QUOTAS
from ..answers import senseless
from ..connection import Connection

QuotaEntity: TypeAlias = Mapping[str, str | None]
"""The client that a quota applies to: "user", "client_id", or both. A name of None is the default
entity: all users, or client ids, without a quota of their own."""

_TYPES: Final = {"user": "user", "client_id": "client-id"}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotas:
    """The quotas of one entity."""

    entity: QuotaEntity
    quotas: Mapping[str, float]  # by key, e.g. {"producer_byte_rate": 1048576.0}


async def describe_quotas(
    connection: Connection, entity: QuotaEntity, *, strict: bool
) -> list[ClientQuotas]:
    """Query any broker; see `AsyncAdmin.describe_quotas`."""
    request = pb.DescribeClientQuotasRequest(
        filters=[
            pb.QuotaFilter(type=kind, name=name)
            if name is not None
            else pb.QuotaFilter(type=kind, is_default=True)
            for kind, name in _parts(entity)
        ],
        strict=strict,
        min_metadata_offset=connection.topology.metadata_offset,
    )
    answer = await connection.call_any(ADMIN_DESCRIBE_CLIENT_QUOTAS, request)
    connection.topology.saw_offset(answer.metadata_offset)
    return [
        ClientQuotas(
            entity={
                _NAMES.get(part.type, part.type): part.name if part.HasField("name") else None
                for part in each.entity
            },
            quotas={value.key: value.value for value in each.values},
        )
        for each in answer.quotas
    ]


async def alter_quotas(
    connection: Connection,
    entity: QuotaEntity,
    quotas: Mapping[str, float],
    delete: Sequence[str],
    *,
    validate_only: bool,
) -> None:
    """Send a change of one entity's quotas to the controller; idempotent."""
    alteration = pb.ClientQuotaAlteration(
        entity=[
            metadata_records_pb2.QuotaEntity(type=kind, name=name) for kind, name in _parts(entity)
        ],
        changes=_changes(quotas, delete),
    )
    request = pb.AlterClientQuotasRequest(alterations=[alteration], validate_only=validate_only)
    answer = await connection.call_any(ADMIN_ALTER_CLIENT_QUOTAS, request)
    if len(answer.results) != 1:
        raise senseless(f"returned {len(answer.results)} results for 1 change of quotas")
    connection.topology.saw_offset(answer.metadata_offset)
    if answer.results[0].HasField("error"):
        raise decode_error(answer.results[0].error)


def _parts(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    for name, value in entity.items():
        if name not in _TYPES:
            raise InvalidRequest(f"the entity has {name!r}; give user, client_id, or both")
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{name} is {value!r}; give text, or None for the default")
    return [(_TYPES[name], value) for name, value in entity.items()]


def _changes(quotas: Mapping[str, float], delete: Sequence[str]) -> list[pb.QuotaChange]:
    if isinstance(delete, str):
        raise InvalidRequest(f"delete is {delete!r}; give a list of keys")
    changes = [pb.QuotaChange(key=key, value=_number(key, value)) for key, value in quotas.items()]
    changes += [pb.QuotaChange(key=key) for key in delete]
    if not changes:
        raise InvalidRequest("there is nothing to change: name a quota to set or to delete")
    return changes


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"{key} is {value!r}; give a number above 0")
    return float(value)
