"""UpdateFeatures: change finalized feature levels, all or none (KIP-584).

Versions 0 and 1 have a result for each feature beside the top-level error. Version 0 has a flag for
downgrades, later versions a type of change (KIP-778). Safe and unsafe downgrades are treated alike,
since no level loses metadata silently.
"""

from typing import Any, Final

from ....errors import InvalidRequest
from ....metadata import FeatureUpdate, UpdateFeatures
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..error_codes import error_fields
from ..item_results import outcome, wait_applied, with_timeout

UPGRADE: Final = 1
_DOWNGRADES: Final = (2, 3)  # safe, unsafe

LAST_WITH_RESULTS: Final = 1


async def update_features(broker: BrokerContext, call: Call) -> Answer:
    """Forward the changes to the controller."""
    error = await outcome(_update(broker, call))
    answer = dict(error_fields(error))
    if call.version <= LAST_WITH_RESULTS:
        updates = () if error is not None else call.body.feature_updates
        answer["results"] = [
            {"feature": update.feature, **error_fields(None)} for update in updates
        ]
    return answer


async def _update(broker: BrokerContext, call: Call) -> None:
    body = call.body
    context = with_timeout(call, body.timeout)
    command = UpdateFeatures(
        updates=tuple(_update_of(update) for update in body.feature_updates),
        validate_only=getattr(body, "validate_only", False),
    )
    submitted = await broker.api.cluster.update_features(command, context)
    await wait_applied(broker, submitted.offset, context)


def _update_of(update: Any) -> FeatureUpdate:
    allow_downgrade = getattr(update, "allow_downgrade", None)
    if allow_downgrade is None:
        kind = update.upgrade_type
        if kind != UPGRADE and kind not in _DOWNGRADES:
            raise InvalidRequest(
                f"{update.feature!r}: upgrade type {kind} is unknown; give 1 (upgrade), 2 (safe"
                " downgrade) or 3 (unsafe downgrade)"
            )
        allow_downgrade = kind in _DOWNGRADES
    return FeatureUpdate(
        name=update.feature, level=update.max_version_level, allow_downgrade=allow_downgrade
    )


API: Final = KafkaApi(
    key=57, name="UpdateFeatures", low=0, high=2, flexible=0, handle=update_features
)
