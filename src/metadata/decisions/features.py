"""Feature levels: what every node of the cluster may rely on. Decisions, pure.

A level is *finalized* by a record and holds from there on, on every node. It can only be one that
every registered broker says it works with, fenced or not: one that is away would come back to
records that it does not know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import FeatureUpdateFailed, InvalidRequest
from ...proto import metadata_records_pb2 as pb
from ...settings.rows import nearest
from ..commands import FeaturesUpdated, UpdateFeatures
from ..decision import Decision
from ..image import BrokerImage, MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One row of the table of what this version knows."""

    name: str
    level_min: int  # lowest finalized level that this version works with
    level_max: int  # highest
    default: int  # of a cluster where nothing was finalized
    doc: str


FEATURES: Final[Mapping[str, Feature]] = {
    row.name: row
    for row in (
        Feature(
            name="metadata.version",
            level_min=1,
            level_max=1,
            default=1,
            doc="Which metadata records may be written. Level 1: replicated partitions, eligible"
            " leader replicas, reassignments, transactions of records.",
        ),
    )
}
"""By name, ascending."""

OWN_FEATURES: Final = tuple((row.name, row.level_min, row.level_max) for row in FEATURES.values())
"""What a node of this version registers: name, lowest and highest level."""


def finalized_level(image: MetadataImage, name: str) -> int:
    """Return the level of a feature that is in force."""
    row = FEATURES.get(name)
    return image.features.get(name, 0 if row is None else row.default)


def supported_levels(image: MetadataImage, name: str) -> tuple[int, int]:
    """Return the lowest and highest level that this node and every registered broker work with;
    the first is above the second where there is none."""
    row = FEATURES[name]
    low, high = row.level_min, row.level_max
    for broker in image.brokers.values():
        of_broker = _levels_of(broker, row)
        low, high = max(low, of_broker[0]), min(high, of_broker[1])
    return low, high


def feature_levels(image: MetadataImage) -> list[tuple[str, int, int, int]]:
    """Return each known feature by ascending name: level in force, and what `supported_levels`
    says."""
    return [
        (name, finalized_level(image, name), *supported_levels(image, name)) for name in FEATURES
    ]


def check_registration(image: MetadataImage, features: Iterable[tuple[str, int, int]]) -> None:
    """Raise FeatureUpdateFailed if a broker that says this of itself does not work with a level in
    force; of what it does not name it knows nothing."""
    known = {name: (low, high) for name, low, high in features}
    if not known:
        return  # from before brokers told
    for name in sorted({*FEATURES, *image.features}):
        level = finalized_level(image, name)
        low, high = known.get(name, (0, 0))
        if not low <= level <= high:
            raise FeatureUpdateFailed(
                f"the cluster has {name} at level {level}, the broker works with {low}..{high}:"
                " start it with a version that fits, or change the level first"
            )


def update_features(image: MetadataImage, command: UpdateFeatures) -> Decision:
    """All of the levels change or none."""
    if not command.updates:
        raise InvalidRequest("name a feature and the level that it shall have")
    wanted: dict[str, int] = {}
    for update in command.updates:
        if update.name in wanted:
            raise InvalidRequest(f"{update.name} is given twice; give each feature once")
        _check_update(image, update.name, update.level, allow_downgrade=update.allow_downgrade)
        wanted[update.name] = update.level
    records = tuple(
        pb.MetadataRecord(feature_level=pb.FeatureLevelRecord(name=name, level=level))
        for name, level in sorted(wanted.items())
        if finalized_level(image, name) != level
    )
    levels = tuple(
        (name, wanted.get(name, level), low, high)
        for name, level, low, high in feature_levels(image)
    )
    return Decision(
        records=() if command.validate_only else records,
        reply=FeaturesUpdated(levels=levels),
        brokers=tuple(broker.id for broker in image.sorted_brokers() if not broker.fenced),
    )


def _check_update(image: MetadataImage, name: str, level: int, *, allow_downgrade: bool) -> None:
    row = FEATURES.get(name)
    if row is None:
        near = nearest(name, FEATURES)
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(FEATURES)}"
        raise FeatureUpdateFailed(f"there is no feature {name!r}{hint}")
    present = finalized_level(image, name)
    if level < present and not allow_downgrade:
        raise FeatureUpdateFailed(
            f"{name} is at level {present}, and {level} would be a downgrade: allow it if you mean"
            " it"
        )
    if not row.level_min <= level <= row.level_max:
        raise FeatureUpdateFailed(
            f"the controller works with {name} {row.level_min}..{row.level_max}, not {level}"
        )
    for broker in image.sorted_brokers():
        low, high = _levels_of(broker, row)
        if not low <= level <= high:
            raise FeatureUpdateFailed(
                f"broker {broker.id} works with {name} {low}..{high}, not {level}: upgrade it, or"
                " unregister it if it is gone for good"
            )


def _levels_of(broker: BrokerImage, row: Feature) -> tuple[int, int]:
    """What a broker works with; one that told nothing registered before brokers told, and works
    with what there was then."""
    if not broker.features:
        return row.level_min, row.default
    for name, low, high in broker.features:
        if name == row.name:
            return low, high
    return 0, 0
