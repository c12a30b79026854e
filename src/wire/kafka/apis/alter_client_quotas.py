"""AlterClientQuotas: sets and clears quotas of clients, each entity by itself (KIP-546)."""

from typing import Any, Final

from ....errors import QuorumlogError
from ....proto import admin_pb2 as pb
from ....proto import metadata_records_pb2
from ....runtime.error_detail import decode_error
from ..api import Answer, Api, Call, Door, Fields
from ..messages import error_fields
from ..parts import applied, outcome


async def alter_client_quotas(door: Door, call: Call) -> Answer:
    """Have the controller change what is asked for."""
    entries = call.body.entries
    if not entries:
        return {"entries": []}
    errors = await _alter(door, call)
    return {
        "entries": [
            {**error_fields(error), "entity": [_entity_fields(part) for part in entry.entity]}
            for entry, error in zip(entries, errors, strict=True)
        ]
    }


async def _alter(door: Door, call: Call) -> list[QuorumlogError | None]:
    """Return why each entry was refused."""
    entries = call.body.entries
    request = pb.AlterClientQuotasRequest(
        alterations=[_alteration(entry) for entry in entries],
        validate_only=call.body.validate_only,
    )
    response = await outcome(door.admin.quotas.alter_client_quotas(request, call.context))
    if isinstance(response, QuorumlogError):
        return [response] * len(entries)
    await applied(door, response.metadata_offset, call.context)
    return [
        decode_error(result.error) if result.HasField("error") else None
        for result in response.results
    ]


def _alteration(entry: Any) -> pb.ClientQuotaAlteration:
    return pb.ClientQuotaAlteration(
        entity=[
            metadata_records_pb2.QuotaEntity(type=part.entity_type, name=part.entity_name)
            for part in entry.entity
        ],
        changes=[
            pb.QuotaChange(key=op.key, value=None if op.remove else op.value) for op in entry.ops
        ],
    )


def _entity_fields(part: Any) -> Fields:
    return {"entity_type": part.entity_type, "entity_name": part.entity_name}


API: Final = Api(
    key=49, name="AlterClientQuotas", low=0, high=1, flexible=1, handle=alter_client_quotas
)
