"""DescribeClientQuotas: return the client quotas that match filters (KIP-546)."""

from typing import Any, Final

from ....errors import InvalidRequest, QuorumlogError
from ....metadata.client_quotas import ENTITY_TYPES, QUOTAS
from ....proto import admin_pb2 as pb
from ....proto import metadata_records_pb2
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..per_item import outcome

ELEMENTS_AN_ENTRY: Final = 1 + len(ENTITY_TYPES) + len(QUOTAS)
"""Upper bound."""


async def describe_client_quotas(broker: BrokerContext, call: Call) -> Answer:
    """Return the quotas of the entities that match the filters."""
    described = await outcome(_describe(broker, call))
    if isinstance(described, QuorumlogError):
        return {**error_fields(described), "entries": None}
    told = {**error_fields(None), "entries": map(_entry, described.quotas)}
    return await encode_if_large(
        broker, call, told, elements=len(described.quotas) * ELEMENTS_AN_ENTRY
    )


async def _describe(broker: BrokerContext, call: Call) -> pb.DescribeClientQuotasResponse:
    request = pb.DescribeClientQuotasRequest(
        filters=[_filter(each) for each in call.body.components], strict=call.body.strict
    )
    return await broker.admin.quotas.describe_client_quotas(request, call.context)


def _filter(component: Any) -> pb.QuotaFilter:
    kind = component.entity_type
    match component.match_type:
        case 0 if component.match is not None:
            return pb.QuotaFilter(type=kind, name=component.match)
        case 1 if component.match is None:
            return pb.QuotaFilter(type=kind, is_default=True)
        case 2 if component.match is None:
            return pb.QuotaFilter(type=kind, is_any=True)
        case _:
            raise InvalidRequest(
                f"match type of {kind!r}: {component.match_type} with {component.match!r}; give 0"
                " with a name, 1 without a name for the default, or 2 without a name for any"
            )


def _entry(quotas: pb.ClientQuotas) -> Fields:
    return {
        "entity": [_entity_fields(part) for part in quotas.entity],
        "values": [{"key": each.key, "value": each.value} for each in quotas.values],
    }


def _entity_fields(part: metadata_records_pb2.QuotaEntity) -> Fields:
    """Return one part of a quota's entity."""
    return {
        "entity_type": part.type,
        "entity_name": part.name if part.HasField("name") else None,
    }


API: Final = KafkaApi(
    key=48, name="DescribeClientQuotas", low=0, high=1, flexible=1, handle=describe_client_quotas
)
