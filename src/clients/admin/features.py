"""Feature levels of the cluster: describe and update."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...errors import InvalidRequest
from ...proto import admin_pb2 as pb
from ...services import ADMIN_DESCRIBE_FEATURES, ADMIN_UPDATE_FEATURES
from ..connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature that needs the support of all nodes."""

    name: str
    level: int  # in force, 0: none
    level_min: int  # lowest level that every broker supports
    level_max: int  # highest level that every broker supports
    doc: str


async def describe_features(connection: Connection) -> dict[str, Feature]:
    """Query any broker; see `AsyncAdmin.describe_features`."""
    request = pb.DescribeFeaturesRequest(min_metadata_offset=connection.topology.metadata_offset)
    answer = await connection.call_any(ADMIN_DESCRIBE_FEATURES, request)
    connection.topology.saw_offset(answer.metadata_offset)
    return _features(answer.features)


async def update_features(
    connection: Connection,
    levels: Mapping[str, int],
    *,
    allow_downgrade: bool,
    validate_only: bool,
) -> dict[str, Feature]:
    """Send the update to the controller; idempotent."""
    for name, level in levels.items():
        if type(level) is not int or not 0 <= level < 2**31:
            raise InvalidRequest(f"level of {name!r} is {level!r}; give a number, 0 or more")
    request = pb.UpdateFeaturesRequest(
        updates=[
            pb.FeatureUpdate(name=name, level=level, allow_downgrade=allow_downgrade)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = await connection.call_any(ADMIN_UPDATE_FEATURES, request)
    connection.topology.saw_offset(answer.metadata_offset)
    return _features(answer.features)


def _features(entries: Iterable[pb.FeatureDescription]) -> dict[str, Feature]:
    return {
        entry.name: Feature(
            name=entry.name,
            level=entry.level,
            level_min=entry.level_min,
            level_max=entry.level_max,
            doc=entry.doc,
        )
        for entry in entries
    }
