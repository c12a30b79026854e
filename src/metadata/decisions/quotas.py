"""Quotas of clients are set and cleared (KIP-546). Decisions, pure.

Each entity stands for itself: one that is refused keeps no other from being changed.
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
from ..commands import AlterClientQuotas, ClientQuotasAltered, QuotaAlteration, Reply
from ..decision import AnyDecision
from ..image import MetadataImage
from .steps import Walk, decision_of


def alter_client_quotas(image: MetadataImage, command: AlterClientQuotas) -> AnyDecision:
    """Records for what really changes; every broker must know before it counts as done."""
    if not command.alterations:
        raise InvalidRequest("name whom quotas are for, and what they shall be")
    outcomes = _within_bound(image, _checked(command))
    errors = tuple(each if isinstance(each, QuorumlogError) else None for each in outcomes)

    def walk() -> Walk:
        if command.validate_only:
            return
        for outcome in outcomes:
            if not isinstance(outcome, QuorumlogError):
                yield from _records(image, *outcome)

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        active = (broker.id for broker in image.sorted_brokers() if not broker.fenced)
        return ClientQuotasAltered(errors=errors), tuple(active)

    return decision_of("alter quotas of clients", walk(), answer)


_Change = tuple[QuotaEntity, dict[str, float | None]]


def _checked(command: AlterClientQuotas) -> list[_Change | QuorumlogError]:
    """Return each alteration in canonical form, or why it is refused."""
    outcomes = [_check(alteration) for alteration in command.alterations]
    named = Counter(each[0] for each in outcomes if not isinstance(each, QuorumlogError))
    return [
        InvalidRequest(f"{entity_text(each[0])} is given twice; give each once")
        if not isinstance(each, QuorumlogError) and named[each[0]] > 1
        else each
        for each in outcomes
    ]


def _within_bound(
    image: MetadataImage, outcomes: list[_Change | QuorumlogError]
) -> list[_Change | QuorumlogError]:
    """Refuse what would give quotas to more entities than there may be."""
    room = ENTITIES_MAX - len(image.client_quotas)
    bounded: list[_Change | QuorumlogError] = []
    for outcome in outcomes:
        if not isinstance(outcome, QuorumlogError):
            entity, changes = outcome
            is_new = entity not in image.client_quotas and any(changes.values())
            room -= is_new
            if is_new and room < 0:
                outcome = InvalidRequest(
                    f"{ENTITIES_MAX} users and client ids have quotas already: set a default, or"
                    " clear some first"
                )
        bounded.append(outcome)
    return bounded


def _check(alteration: QuotaAlteration) -> _Change | QuorumlogError:
    try:
        entity = check_entity(alteration.entity)
        if not alteration.changes:
            raise InvalidRequest(f"name a quota of {entity_text(entity)} to set or to clear")
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
