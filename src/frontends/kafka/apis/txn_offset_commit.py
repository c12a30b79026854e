"""TxnOffsetCommit: store a group's offsets as a part of a producer's transaction (KIP-98, KIP-447).

Up to version 4 the producer adds the group to its transaction first, by AddOffsetsToTxn, and the
coordinator verifies that; since version 5 the coordinator adds it (KIP-890).
"""

from collections.abc import Sequence
from typing import Final

from ....broker.groups.requests import (
    NO_GENERATION,
    CommitOutcome,
    CommitTransactionalOffsets,
    OffsetToCommit,
)
from ....errors import (
    CoordinatorNotAvailable,
    GroupNotFound,
    IllegalGeneration,
    QuorumlogError,
    StaleMemberEpoch,
)
from ..api import Answer, BrokerContext, Call
from ..encoding_offload import encode_if_large
from ..error_codes import COORDINATOR_LOAD_IN_PROGRESS
from ..group_calls import sort_offsets
from ..item_results import outcome, slices
from ..transactions import producer_of, transaction_code

_KNOWS_LOADING: Final = 2  # older clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)
_KNOWS_ABORTABLE: Final = 4
_ADDS: Final = 5


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Store the offsets of existing partitions until the transaction ends; the others have errors
    of their own."""
    found = await sort_offsets(broker, call)
    codes: list[int] = []
    for offsets in slices(found.wanted):
        stored = await outcome(
            broker.api.transactions.commit_offsets(_request(call, offsets), call.context)
        )
        codes += _codes(call, stored, len(offsets))
    answer = {"topics": found.results(codes)}
    return await encode_if_large(
        broker, call, answer, elements=len(found.codes) + len(found.topics)
    )


def _request(call: Call, offsets: Sequence[OffsetToCommit]) -> CommitTransactionalOffsets:
    body = call.body
    return CommitTransactionalOffsets(
        group=body.group_id,
        member_id=getattr(body, "member_id", ""),
        instance_id=getattr(body, "group_instance_id", None),
        generation=getattr(body, "generation_id", NO_GENERATION),
        offsets=tuple(offsets),
        transactional_id=body.transactional_id,
        producer=producer_of(body),
        adds=call.version >= _ADDS,
    )


def _codes(call: Call, stored: CommitOutcome | QuorumlogError, count: int) -> list[int]:
    """Return the error codes of `count` offsets that were stored together."""
    if isinstance(stored, QuorumlogError):
        return [_code(call, stored)] * count
    return [0 if error is None else _code(call, error) for error in stored.errors]


def _code(call: Call, error: QuorumlogError) -> int:
    if isinstance(error, StaleMemberEpoch | GroupNotFound):
        return IllegalGeneration.code  # the request has no code for them
    code = transaction_code(
        error, knows_fenced=False, knows_abortable=call.version >= _KNOWS_ABORTABLE
    )
    if code == COORDINATOR_LOAD_IN_PROGRESS and call.version < _KNOWS_LOADING:
        return CoordinatorNotAvailable.code
    return code
