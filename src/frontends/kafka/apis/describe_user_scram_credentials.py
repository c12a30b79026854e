"""DescribeUserScramCredentials: return users with the mechanisms and iterations of their
credentials, never a key (KIP-554)."""

from collections.abc import Mapping

from ....errors import DuplicateResource, QuorumlogError, ResourceNotFound
from ....metadata.scram_credentials import ScramCredential, ScramMechanism
from ..api import Answer, BrokerContext, Call, Fields
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import outcome, repeated

_Credentials = Mapping[ScramMechanism, ScramCredential]


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Describe each named user, or all users."""
    names = [each.name for each in call.body.users or ()]
    described = await outcome(_describe(broker, call, names))
    if isinstance(described, QuorumlogError):
        return {**error_fields(described), "results": ()}
    twice = repeated(names)
    results = [_result(user, described, is_twice=user in twice) for user in names or described]
    body = {**error_fields(None), "results": results}
    return await encode_if_large(broker, call, body, elements=3 * len(results))


async def _describe(
    broker: BrokerContext, call: Call, names: list[str]
) -> Mapping[str, _Credentials]:
    described, _ = await broker.api.scram.describe(names, call.context)
    return described


def _result(user: str, described: Mapping[str, _Credentials], *, is_twice: bool) -> Fields:
    error: QuorumlogError | None = None
    if is_twice:
        error = DuplicateResource(f"user {user} is named more than once; name each user once")
    elif user not in described:
        error = ResourceNotFound(f"user {user} has no SCRAM credential")
    credentials = {} if error is not None else described[user]
    return {
        "user": user,
        **error_fields(error),
        "credential_infos": [
            {"mechanism": int(mechanism), "iterations": credential.iterations}
            for mechanism, credential in credentials.items()
        ],
    }
