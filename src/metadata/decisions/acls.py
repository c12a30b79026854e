"""Creation and deletion of ACLs (KIP-140). Pure.

ACLs and filters succeed or fail independently.
"""

from collections import Counter

from ...errors import InvalidRequest, QuorumlogError
from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ..acls import ACLS_MAX, PRINCIPAL_ACLS_MAX, Acl, acl_message, check_acl, check_filter
from ..commands import AclDeletion, AclsCreated, AclsDeleted, CreateAcls, DeleteAcls, Reply
from ..decision import AnyDecision
from ..image import MetadataImage
from .steps import Walk, decision_of


def create_acls(image: MetadataImage, command: CreateAcls) -> AnyDecision:
    """Decide the creation of ACLs. The command completes when every active broker has applied
    it."""
    outcomes = [_checked(acl) for acl in command.acls]
    created: dict[Acl, None] = {}
    counts: Counter[str] = Counter()  # of created ACLs by principal
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, QuorumlogError) or outcome in created or outcome in image.acls:
            continue
        own = len(image.acls.acls_of(outcome.principal)) + counts[outcome.principal]
        if image.acls.count + len(created) >= ACLS_MAX or own >= PRINCIPAL_ACLS_MAX:
            outcomes[index] = InvalidRequest(
                f"the limit of {ACLS_MAX} ACLs, {PRINCIPAL_ACLS_MAX} of one principal, is reached;"
                " delete some, or use prefixed patterns"
            )
        else:
            created[outcome] = None
            counts[outcome.principal] += 1
    errors = tuple(each if isinstance(each, QuorumlogError) else None for each in outcomes)

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return AclsCreated(errors=errors), image.unfenced_ids()

    walk = (pb.MetadataRecord(acl=acl_message(acl)) for acl in created)
    return decision_of("create ACLs", walk, answer)


def delete_acls(image: MetadataImage, command: DeleteAcls) -> AnyDecision:
    """Decide the deletion of the ACLs that match filters. The command completes when every active
    broker has applied it."""
    deletions: list[AclDeletion] = []

    def walk() -> Walk:
        deleted: set[Acl] = set()
        for condition in command.filters:
            try:
                checked = check_filter(condition)
            except QuorumlogError as error:
                deletions.append(AclDeletion(error=error))
                continue
            matched: list[Acl] = []
            for acl in image.acls.visit(checked):
                if acl is None:
                    yield None
                    continue
                matched.append(acl)
                if acl not in deleted:
                    deleted.add(acl)
                    yield pb.MetadataRecord(remove_acl=acl_message(acl))
            deletions.append(AclDeletion(acls=tuple(matched)))

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return AclsDeleted(deletions=tuple(deletions)), image.unfenced_ids()

    return decision_of("delete ACLs", walk(), answer)


def _checked(acl: Acl) -> Acl | QuorumlogError:
    try:
        return check_acl(acl)
    except QuorumlogError as error:
        return error
