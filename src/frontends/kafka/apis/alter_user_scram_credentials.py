"""AlterUserScramCredentials: set and delete SCRAM credentials, each user with its own result
(KIP-554).

The client sends a salted password. Only the keys that verify it are forwarded and stored.
"""

from typing import Any

from ....errors import QuorumlogError, UnacceptableCredential
from ....metadata import AlterScramCredentials, ScramCredentialsAltered, Submitted
from ....metadata.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramKey,
    credential_of_salted,
    mechanism_of,
)
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import PARTS_A_STEP, check_count, outcome, wait_applied


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the changes to the controller, except those of users with an invalid one."""
    body = call.body
    errors: dict[str, QuorumlogError | None] = dict.fromkeys(
        each.name for each in (*body.deletions, *body.upsertions)
    )
    deletions: list[ScramKey] = []
    upsertions: list[tuple[ScramKey, ScramCredential]] = []
    take_turn = step_counter(PARTS_A_STEP)
    for change in (*body.deletions, *body.upsertions):
        await take_turn()
        try:
            key = (change.name, mechanism_of(change.mechanism))
            if hasattr(change, "salt"):
                upsertions.append((key, _credential(key, change)))
            else:
                deletions.append(key)
        except QuorumlogError as error:
            errors[change.name] = error
    command = AlterScramCredentials(
        deletions=tuple(key for key in deletions if errors[key[0]] is None),
        upsertions=tuple(each for each in upsertions if errors[each[0][0]] is None),
    )
    if command.deletions or command.upsertions:
        altered = await outcome(_alter(broker, call, command))
        if isinstance(altered, QuorumlogError):
            errors = dict.fromkeys(errors, altered)
        else:
            await wait_applied(broker, altered.offset, call.context)
            errors |= {each.user: each.error for each in altered.reply.outcomes}
    results = [{"user": user, **error_fields(error)} for user, error in errors.items()]
    return await encode_if_large(broker, call, {"results": results}, elements=len(results))


async def _alter(
    broker: BrokerContext, call: Call, command: AlterScramCredentials
) -> Submitted[ScramCredentialsAltered]:
    check_count(len(command.deletions) + len(command.upsertions))
    return await broker.api.scram.alter(command, call.context)


def _credential(key: ScramKey, change: Any) -> ScramCredential:
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"user {key[0]}: iterations is {change.iterations}; give"
            f" {ITERATIONS_MIN}..{ITERATIONS_MAX}"
        )
    if not change.salted_password:
        raise UnacceptableCredential(f"user {key[0]}: the salted password is empty")
    return credential_of_salted(
        key[1], change.salted_password, salt=change.salt, iterations=change.iterations
    )
