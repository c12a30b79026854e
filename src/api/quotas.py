"""Client quotas: describe and alter."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ..errors import InvalidRequest
from ..ids import Offset
from ..metadata import AlterClientQuotas, ClientQuotasAltered, Submitted
from ..metadata.acls import AclOperation, AclResourceType
from ..metadata.client_quotas import (
    ENTITY_TYPES,
    QUOTAS,
    EntityFilter,
    QuotaEntity,
    check_filters,
    matching_entities,
)
from .authorizer import Authorizer
from .metadata_access import MetadataAccess
from .request_context import RequestContext

ALTERATIONS_MAX: Final = 1_000  # in one call
FILTERS_MAX: Final = len(ENTITY_TYPES) + 1  # further ones are not read: one type occurs twice


class QuotaAdmin:
    """The operations on client quotas."""

    def __init__(self, metadata: MetadataAccess, authorizer: Authorizer) -> None:
        self._metadata = metadata
        self._authorizer = authorizer

    async def describe(
        self, filters: Sequence[EntityFilter], context: RequestContext, *, strict: bool
    ) -> tuple[list[tuple[QuotaEntity, Mapping[str, float]]], Offset]:
        """Return the quotas of the entities that match every filter, and the offset of the
        metadata; with `strict`, only of entities without further parts."""
        filters = filters[:FILTERS_MAX]
        check_filters(filters)
        image = await self._metadata.reach(context)
        self._check(AclOperation.DESCRIBE_CONFIGS, context)
        quotas = image.client_quotas
        entities = matching_entities(quotas, filters, strict=strict)
        return [(entity, quotas[entity]) for entity in entities], image.offset

    async def alter(
        self, command: AlterClientQuotas, context: RequestContext
    ) -> Submitted[ClientQuotasAltered]:
        """Set and remove quotas, each entity with its own result."""
        authorize = partial(self._check, AclOperation.ALTER_CONFIGS, context)
        authorize()
        count = len(command.alterations)
        if not 1 <= count <= ALTERATIONS_MAX:
            raise InvalidRequest(f"alterations: {count} entries; give 1..{ALTERATIONS_MAX}")
        for alteration in command.alterations:
            if max(len(alteration.entity), len(alteration.changes)) > 2 * len(QUOTAS):
                raise InvalidRequest(
                    f"alteration: {len(alteration.entity)} entity parts and"
                    f" {len(alteration.changes)} quotas; give each once"
                )
        return await self._metadata.submit(command, context, authorize)

    def _check(self, operation: AclOperation, context: RequestContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.CLUSTER)
