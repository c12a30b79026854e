"""Security: ACLs, and the SCRAM credentials of users."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from ..errors import InvalidRequest, SecurityDisabled
from ..ids import Offset
from ..metadata import (
    AclsCreated,
    AclsDeleted,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    ScramCredentialsAltered,
    Submitted,
)
from ..metadata.acls import Acl, AclFilter, AclOperation, AclResourceType, check_filter
from ..metadata.authorization import Action, check_action
from ..metadata.scram_credentials import ScramCredential, ScramMechanism
from ..runtime.steps import step_counter
from .audit import recorded
from .authorizer import Authorizer
from .metadata_access import MetadataAccess
from .request_context import RequestContext

CHANGES_MAX: Final = 1_000  # ACLs, filters or credentials of one call
USERS_MAX: Final = 10_000  # in one description
VISITS_A_STEP: Final = 2_000  # ACLs visited between two turns of other tasks


class ScramKeysRead(NamedTuple):
    """The entry of the audit log for a read of salted keys."""

    users: tuple[str, ...]  # empty: all


class AclAdmin:
    """The operations on ACLs. Without an authorizer they raise SecurityDisabled."""

    def __init__(self, metadata: MetadataAccess, authorizer: Authorizer) -> None:
        self._metadata = metadata
        self._authorizer = authorizer

    async def describe(
        self, condition: AclFilter, context: RequestContext
    ) -> tuple[list[Acl], Offset]:
        """Return the ACLs that match, ordered by principal, then by resource, and the offset of the
        metadata. Other tasks run in between."""
        image = await self._metadata.reach(context)
        self._check(AclOperation.DESCRIBE, context)
        checked = check_filter(condition)
        found, take_turn = list[Acl](), step_counter(VISITS_A_STEP)
        for acl in image.acls.visit(checked):
            if acl is not None:
                found.append(acl)
            await take_turn()
        return found, image.offset

    async def create(self, command: CreateAcls, context: RequestContext) -> Submitted[AclsCreated]:
        """Create ACLs, each with its own result."""
        authorize = partial(self._check, AclOperation.ALTER, context)
        authorize()
        _check_count("acls", command.acls)
        return await self._metadata.submit(command, context, authorize)

    async def delete(self, command: DeleteAcls, context: RequestContext) -> Submitted[AclsDeleted]:
        """Delete the ACLs that match filters, each filter with its own result."""
        authorize = partial(self._check, AclOperation.ALTER, context)
        authorize()
        _check_count("filters", command.filters)
        return await self._metadata.submit(command, context, authorize)

    async def explain(self, action: Action, context: RequestContext) -> tuple[bool, str]:
        """Return the decision for an action, and its cause as a clause."""
        await self._metadata.reach(context)
        self._check(AclOperation.DESCRIBE, context)
        checked = check_action(action)
        return self._authorizer.explain(checked)

    def _check(self, operation: AclOperation, context: RequestContext) -> None:
        if not self._authorizer.is_enabled:
            raise SecurityDisabled(
                "the broker has no authorizer, so ACLs have no effect; docs/security.md has the"
                " settings of an authorizer"
            )
        self._authorizer.check(context.client, operation, AclResourceType.CLUSTER)


class ScramAdmin:
    """The operations on SCRAM credentials."""

    def __init__(self, metadata: MetadataAccess, authorizer: Authorizer) -> None:
        self._metadata = metadata
        self._authorizer = authorizer

    async def describe(
        self, users: Sequence[str], context: RequestContext, *, with_keys: bool = False
    ) -> tuple[dict[str, dict[ScramMechanism, ScramCredential]], Offset]:
        """Return the credentials of users, of all if none is named, by user and mechanism in
        ascending order, and the offset of the metadata. Unknown users are left out. `with_keys`:
        the client gets the keys; it needs the right to set passwords, and the read is audited."""
        image = await self._metadata.reach(context)
        self._check(AclOperation.DESCRIBE, context)
        if with_keys:
            with recorded(self._metadata.audit, context.client, ScramKeysRead(tuple(users))):
                self._check(AclOperation.ALTER, context)
        if len(users) > USERS_MAX:
            raise InvalidRequest(f"users: {len(users)} entries; give 0..{USERS_MAX}")
        credentials = image.scram_credentials
        keys = (
            ((user, each) for user in sorted(set(users)) for each in ScramMechanism)
            if users
            else sorted(credentials)
        )
        found = [key for key in keys if key in credentials]
        by_user = groupby(found, key=itemgetter(0))
        return {
            user: {mechanism: credentials[user, mechanism] for _, mechanism in those}
            for user, those in by_user
        }, image.offset

    async def alter(
        self, command: AlterScramCredentials, context: RequestContext
    ) -> Submitted[ScramCredentialsAltered]:
        """Set and delete credentials, each user with its own result."""
        authorize = partial(self._check, AclOperation.ALTER, context)
        authorize()
        _check_count("changes", (*command.deletions, *command.upsertions))
        return await self._metadata.submit(command, context, authorize)

    def _check(self, operation: AclOperation, context: RequestContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.CLUSTER)


def _check_count(field: str, items: Sequence[object]) -> None:
    if not 1 <= len(items) <= CHANGES_MAX:
        raise InvalidRequest(f"{field}: {len(items)} entries; give 1..{CHANGES_MAX}")
