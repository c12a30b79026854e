"""AlterClientQuotas: set and remove client quotas, each entity with its own result (KIP-546)."""

from typing import Any, Final

from ....errors import QuorumlogError
from ....metadata import AlterClientQuotas, ClientQuotasAltered, QuotaAlteration, Submitted
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import check_count, outcome, wait_applied


async def alter_client_quotas(broker: BrokerContext, call: Call) -> Answer:
    """Forward the changes to the controller."""
    entries = call.body.entries
    if not entries:
        return {"entries": []}
    errors = await _alter(broker, call)
    result_entries = (
        {**error_fields(error), "entity": [_entity_fields(part) for part in entry.entity]}
        for entry, error in zip(entries, errors, strict=True)
    )
    elements = sum(1 + len(entry.entity) for entry in entries)
    return await encode_if_large(broker, call, {"entries": result_entries}, elements=elements)


async def _alter(broker: BrokerContext, call: Call) -> list[QuorumlogError | None]:
    """Return the error of each entry, or None."""
    submitted = await outcome(_submit(broker, call))
    if isinstance(submitted, QuorumlogError):
        return [submitted] * len(call.body.entries)
    await wait_applied(broker, submitted.offset, call.context)
    return [each.error for each in submitted.reply.outcomes]


async def _submit(broker: BrokerContext, call: Call) -> Submitted[ClientQuotasAltered]:
    entries = call.body.entries
    check_count(sum(max(1, len(entry.entity), len(entry.ops)) for entry in entries))
    command = AlterClientQuotas(
        alterations=tuple(_alteration(entry) for entry in entries),
        validate_only=call.body.validate_only,
    )
    return await broker.api.quotas.alter(command, call.context)


def _alteration(entry: Any) -> QuotaAlteration:
    return QuotaAlteration(
        entity=tuple((part.entity_type, part.entity_name) for part in entry.entity),
        changes=tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def _entity_fields(part: Any) -> Fields:
    return {"entity_type": part.entity_type, "entity_name": part.entity_name}


API: Final = KafkaApi(
    key=49, name="AlterClientQuotas", low=0, high=1, flexible=1, handle=alter_client_quotas
)
