"""Changes of client quotas (KIP-546). Pure.

Entities succeed or fail independently.
"""

from collections import Counter
from collections.abc import Iterator

from ...errors import InvalidRequest, QuorumlogError
from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ..client_quotas import (
    ENTITIES_MAX,
    QuotaEntity,
    check_entity,
    check_quota_changes,
    entity_text,
    quota_record,
)
from ..commands import AlterClientQuotas, ClientQuotasAltered, QuotaAlteration, QuotaOutcome, Reply
from ..decision import AnyDecision
from ..image import MetadataImage
from .steps import Walk, decision_of


def alter_client_quotas(image: MetadataImage, command: AlterClientQuotas) -> AnyDecision:
    """Decide the changes of quotas. The command completes when every active broker has applied
    them."""
    if not command.alterations:
        raise InvalidRequest("no changes; give an entity and its quotas")
    outcomes = _within_bound(image, _checked(command))
    results = tuple(
        QuotaOutcome(
            entity=alteration.entity, error=each if isinstance(each, QuorumlogError) else None
        )
        for alteration, each in zip(command.alterations, outcomes, strict=True)
    )

    def walk() -> Walk:
        if command.validate_only:
            return
        for outcome in outcomes:
            if not isinstance(outcome, QuorumlogError):
                yield from _records(image, *outcome)

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return ClientQuotasAltered(outcomes=results), image.unfenced_ids()

    return decision_of("alter quotas of clients", walk(), answer)


_Change = tuple[QuotaEntity, dict[str, float | None]]


def _checked(command: AlterClientQuotas) -> list[_Change | QuorumlogError]:
    """Return each alteration in canonical form, or its error."""
    outcomes = [_check(alteration) for alteration in command.alterations]
    named = Counter(each[0] for each in outcomes if not isinstance(each, QuorumlogError))
    return [
        InvalidRequest(f"{entity_text(each[0])} is given more than once; give each entity once")
        if not isinstance(each, QuorumlogError) and named[each[0]] > 1
        else each
        for each in outcomes
    ]


def _within_bound(
    image: MetadataImage, outcomes: list[_Change | QuorumlogError]
) -> list[_Change | QuorumlogError]:
    """Replace alterations that would exceed ENTITIES_MAX by errors."""
    left = ENTITIES_MAX - len(image.client_quotas)
    bounded: list[_Change | QuorumlogError] = []
    for outcome in outcomes:
        if not isinstance(outcome, QuorumlogError):
            entity, changes = outcome
            is_new = entity not in image.client_quotas and any(changes.values())
            left -= is_new
            if is_new and left < 0:
                outcome = InvalidRequest(
                    f"the limit of {ENTITIES_MAX} entities with quotas is reached; set a default,"
                    " or delete some first"
                )
        bounded.append(outcome)
    return bounded


def _check(alteration: QuotaAlteration) -> _Change | QuorumlogError:
    try:
        entity = check_entity(alteration.entity)
        if not alteration.changes:
            raise InvalidRequest(f"no changes for {entity_text(entity)}; give a quota")
        return entity, check_quota_changes(alteration.changes)
    except QuorumlogError as error:
        return error


def _records(
    image: MetadataImage, entity: QuotaEntity, changes: dict[str, float | None]
) -> Iterator[pb.MetadataRecord]:
    present = image.client_quotas.get(entity)
    for key, value in changes.items():
        if value != (None if present is None else present.get(key)):
            yield quota_record(entity, key, value)
