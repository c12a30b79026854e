"""Changes of SCRAM credentials (KIP-554). Pure.

Users succeed or fail independently; all changes of one user are made, or none.
"""

from ...errors import (
    DuplicateResource,
    QuorumlogError,
    ResourceNotFound,
    UnacceptableCredential,
)
from ...ids import NodeId
from ..commands import AlterScramCredentials, Reply, ScramCredentialsAltered, ScramOutcome
from ..decision import AnyDecision
from ..image import MetadataImage
from ..scram_credentials import (
    CREDENTIALS_MAX,
    ScramCredential,
    ScramMechanism,
    check_credential,
    check_user,
    credential_record,
)
from .steps import Walk, decision_of

_Change = tuple[ScramMechanism, ScramCredential | None]


def alter_scram_credentials(image: MetadataImage, command: AlterScramCredentials) -> AnyDecision:
    """Decide the changes of credentials. The command completes when every active broker has applied
    it."""
    by_user: dict[str, list[_Change]] = {}
    for user, mechanism in command.deletions:
        by_user.setdefault(user, []).append((mechanism, None))
    for (user, mechanism), credential in command.upsertions:
        by_user.setdefault(user, []).append((mechanism, credential))
    room = CREDENTIALS_MAX - len(image.scram_credentials)
    outcomes: list[ScramOutcome] = []
    for user, changes in by_user.items():
        try:
            added = _check(image, user, changes, room)
        except QuorumlogError as error:
            outcomes.append(ScramOutcome(user=user, error=error))
        else:
            room -= added
            outcomes.append(ScramOutcome(user=user))

    def walk() -> Walk:
        for outcome in outcomes:
            for mechanism, credential in () if outcome.error else by_user[outcome.user]:
                yield credential_record((outcome.user, mechanism), credential)

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return ScramCredentialsAltered(outcomes=tuple(outcomes)), image.unfenced_ids()

    return decision_of("alter SCRAM credentials", walk(), answer)


def _check(image: MetadataImage, user: str, changes: list[_Change], room: int) -> int:
    """Return the number of credentials that the changes of a user add; raise a QuorumlogError."""
    check_user(user)
    added = 0
    for mechanism, credential in changes:
        if [each for each, _ in changes].count(mechanism) > 1:
            raise DuplicateResource(
                f"user {user}: {mechanism.sasl_name} is given more than once; give it once"
            )
        is_present = (user, mechanism) in image.scram_credentials
        if credential is not None:
            check_credential(mechanism, credential)
            added += not is_present
        elif is_present:
            added -= 1
        else:
            raise ResourceNotFound(f"user {user} has no {mechanism.sasl_name} credential")
    if added > max(0, room):
        raise UnacceptableCredential(
            f"the limit of {CREDENTIALS_MAX} credentials is reached; delete some first"
        )
    return added
