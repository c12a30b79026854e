"""DescribeClientQuotas: return the client quotas that match filters (KIP-546)."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....errors import InvalidRequest, QuorumlogError
from ....metadata.client_quotas import ENTITY_TYPES, QUOTAS, EntityFilter, QuotaEntity
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import outcome

ELEMENTS_AN_ENTRY: Final = 1 + len(ENTITY_TYPES) + len(QUOTAS)
"""Upper bound."""


async def describe_client_quotas(broker: BrokerContext, call: Call) -> Answer:
    """Return the quotas of the entities that match the filters."""
    described = await outcome(_describe(broker, call))
    if isinstance(described, QuorumlogError):
        return {**error_fields(described), "entries": None}
    body = {**error_fields(None), "entries": itertools.starmap(_entry, described)}
    return await encode_if_large(broker, call, body, elements=len(described) * ELEMENTS_AN_ENTRY)


async def _describe(
    broker: BrokerContext, call: Call
) -> Sequence[tuple[QuotaEntity, Mapping[str, float]]]:
    filters = [_filter(each) for each in call.body.components]
    quotas, _ = await broker.api.quotas.describe(filters, call.context, strict=call.body.strict)
    return quotas


def _filter(component: Any) -> EntityFilter:
    kind = component.entity_type
    match component.match_type:
        case 0 if component.match is not None:
            return EntityFilter(type=kind, name=component.match)
        case 1 if component.match is None:
            return EntityFilter(type=kind)
        case 2 if component.match is None:
            return EntityFilter(type=kind, is_any=True)
        case _:
            raise InvalidRequest(
                f"match type of {kind!r}: {component.match_type} with {component.match!r}; give 0"
                " with a name, 1 without a name for the default, or 2 without a name for any"
            )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> Fields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "values": [{"key": key, "value": value} for key, value in sorted(quotas.items())],
    }


API: Final = KafkaApi(
    key=48, name="DescribeClientQuotas", low=0, high=1, flexible=1, handle=describe_client_quotas
)
