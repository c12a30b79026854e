"""The quota methods of the service `Admin`."""

from collections.abc import Mapping
from typing import Final

from ...errors import InvalidRequest
from ...metadata import describe_client_quotas
from ...metadata.client_quotas import (
    ENTITY_TYPES,
    QUOTAS,
    EntityFilter,
    check_filters,
    matching_entities,
)
from ...proto import admin_pb2 as pb
from ...proto import controller_pb2
from ...runtime import CallContext, Handler
from ...services import ADMIN_ALTER_CLIENT_QUOTAS, ADMIN_DESCRIBE_CLIENT_QUOTAS
from .metadata_access import MetadataAccess

ALTERATIONS_MAX: Final = 1_000  # in one request


class QuotaAdmin:
    """Handlers of the quota methods of `quorumlog.v1.Admin`."""

    def __init__(self, metadata: MetadataAccess) -> None:
        self._metadata = metadata

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_DESCRIBE_CLIENT_QUOTAS, self.describe_client_quotas),
            Handler(ADMIN_ALTER_CLIENT_QUOTAS, self.alter_client_quotas),
        )
        return {handler.method.path: handler for handler in table}

    async def describe_client_quotas(
        self, request: pb.DescribeClientQuotasRequest, context: CallContext
    ) -> pb.DescribeClientQuotasResponse:
        """Return the quotas of the entities that match the filters."""
        filters = [_filter(each) for each in request.filters[: len(ENTITY_TYPES) + 1]]
        check_filters(filters)
        image = await self._metadata.reach(request.min_metadata_offset, context)
        quotas = image.client_quotas
        entities = matching_entities(quotas, filters, strict=request.strict)
        return pb.DescribeClientQuotasResponse(
            quotas=describe_client_quotas(quotas, entities), metadata_offset=image.offset
        )

    async def alter_client_quotas(
        self, request: pb.AlterClientQuotasRequest, context: CallContext
    ) -> pb.AlterClientQuotasResponse:
        """Set and remove quotas, each entity with its own result."""
        count = len(request.alterations)
        if not 1 <= count <= ALTERATIONS_MAX:
            raise InvalidRequest(f"alterations: {count} entries; give 1..{ALTERATIONS_MAX}")
        for alteration in request.alterations:
            if max(len(alteration.entity), len(alteration.changes)) > 2 * len(QUOTAS):
                raise InvalidRequest(
                    f"alteration: {len(alteration.entity)} entity parts and"
                    f" {len(alteration.changes)} quotas; give each once"
                )
        relayed = controller_pb2.RelayRequest(alter_client_quotas=request)
        return (await self._metadata.relay(relayed, context)).alter_client_quotas


def _filter(wanted: pb.QuotaFilter) -> EntityFilter:
    match wanted.WhichOneof("match"):
        case "name":
            return EntityFilter(type=wanted.type, name=wanted.name)
        case "is_default" if wanted.is_default:
            return EntityFilter(type=wanted.type)
        case "is_any" if wanted.is_any:
            return EntityFilter(type=wanted.type, is_any=True)
        case _:
            raise InvalidRequest("filter: empty; give a name, is_default or is_any")
