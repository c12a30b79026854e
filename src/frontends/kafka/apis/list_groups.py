"""ListGroups: list the groups that this broker coordinates, by state (KIP-518) and type
(KIP-848)."""

from collections.abc import Sequence
from typing import Final

from ....broker.groups.requests import ListedGroup
from ....errors import QuorumlogError
from ..api import Answer, BrokerContext, Call, Fields
from ..encoding_offload import encode_if_large
from ..error_codes import group_code

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """List the groups that match the filters; an empty filter matches all groups."""
    authorizer, client = broker.api.authorizer, call.client.identity
    try:
        listings = await broker.groups.list_groups(
            lambda name: authorizer.describes_group(client, name)
        )
    except QuorumlogError as error:
        return {"error_code": group_code(error), "groups": ()}
    states = _wanted(getattr(call.body, "states_filter", ()))
    types = _wanted(getattr(call.body, "types_filter", ()))
    groups = [
        _line(each)
        for each in listings
        if (not states or each.state.lower() in states)
        and (not types or type_of(each).lower() in types)
    ]
    return await encode_if_large(
        broker, call, {"error_code": 0, "groups": groups}, elements=len(groups)
    )


def type_of(listing: ListedGroup) -> str:
    """Return Kafka's name of a group's type."""
    return CLASSIC if listing.is_classic else CONSUMER


def _wanted(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _line(listing: ListedGroup) -> Fields:
    return {
        "group_id": listing.group,
        "protocol_type": listing.protocol_type,
        "group_state": listing.state,
        "group_type": type_of(listing),
    }
