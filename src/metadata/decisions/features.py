"""Feature levels of the cluster. Pure.

A record *finalizes* a level for every node. The level must be supported by every registered broker,
fenced or not, since a fenced broker returns and must be able to read newer records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import FeatureUpdateFailed, InvalidRequest
from ...proto import metadata_records_pb2 as pb
from ...settings.declaration import nearest
from ..commands import FeaturesUpdated, UpdateFeatures
from ..decision import Decision
from ..image import BrokerImage, MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature that this release supports."""

    name: str
    level_min: int  # lowest supported level
    level_max: int  # highest supported level
    default: int  # level of a cluster without a finalized one
    of_new_clusters: int = 0  # finalized with a cluster's first broker; 0: none
    doc: str


FEATURES: Final[Mapping[str, Feature]] = {
    row.name: row
    for row in (
        Feature(
            name="metadata.version",
            level_min=1,
            level_max=1,
            default=1,
            doc="Version of the metadata records. Level 1: replicated partitions, eligible leader"
            " replicas, reassignments, metadata transactions.",
        ),
        Feature(
            name="transaction.version",
            level_min=0,
            level_max=2,
            default=0,
            of_new_clusters=2,
            doc="Transaction protocol of clients. Level 2: each transaction has its own producer"
            " epoch, and partitions are added by the first write (KIP-890).",
        ),
    )
}
"""By name, ascending."""

OWN_FEATURES: Final = tuple((row.name, row.level_min, row.level_max) for row in FEATURES.values())
"""The features that a node of this release registers: name, lowest and highest level."""


def finalized_level(image: MetadataImage, name: str) -> int:
    """Return the level of a feature, finalized or default."""
    row = FEATURES.get(name)
    return image.features.get(name, 0 if row is None else row.default)


def supported_levels(image: MetadataImage, name: str) -> tuple[int, int]:
    """Return the lowest and highest level that this node and every registered broker support; the
    lowest is above the highest if there is no common level."""
    row = FEATURES[name]
    low, high = row.level_min, row.level_max
    for broker in image.brokers.values():
        of_broker = _levels_of(broker, row)
        low, high = max(low, of_broker[0]), min(high, of_broker[1])
    return low, high


def feature_levels(image: MetadataImage) -> list[tuple[str, int, int, int]]:
    """Return each feature by ascending name, with its level and `supported_levels`."""
    return [
        (name, finalized_level(image, name), *supported_levels(image, name)) for name in FEATURES
    ]


def check_registration(image: MetadataImage, features: Iterable[tuple[str, int, int]]) -> None:
    """Raise FeatureUpdateFailed if a broker with these features does not support a level in force.
    A feature that it does not list is unsupported."""
    known = {name: (low, high) for name, low, high in features}
    if not known:
        return  # a release that registers no features
    for name in sorted({*FEATURES, *image.features}):
        level = finalized_level(image, name)
        low, high = known.get(name, (0, 0))
        if not low <= level <= high:
            raise FeatureUpdateFailed(
                f"{name} of the cluster is {level}, the broker supports {low}..{high}; start it"
                " with another release, or change the level first"
            )


def new_cluster_levels(
    image: MetadataImage, features: Iterable[tuple[str, int, int]]
) -> list[pb.MetadataRecord]:
    """Return the records that finalize the levels of a new cluster, as far as its first broker,
    which has these features, supports them; none for any other cluster."""
    if image.brokers or image.topics_by_id or image.features:
        return []
    known = {name: range(low, high + 1) for name, low, high in features}
    return [
        _finalized(row.name, row.of_new_clusters)
        for row in FEATURES.values()
        if row.of_new_clusters and row.of_new_clusters in known.get(row.name, ())
    ]


def _finalized(name: str, level: int) -> pb.MetadataRecord:
    return pb.MetadataRecord(feature_level=pb.FeatureLevelRecord(name=name, level=level))


def update_features(image: MetadataImage, command: UpdateFeatures) -> Decision:
    """Decide the change of feature levels, all or none."""
    if not command.updates:
        raise InvalidRequest("no changes; give a feature and its new level")
    wanted: dict[str, int] = {}
    for update in command.updates:
        if update.name in wanted:
            raise InvalidRequest(f"{update.name} is given more than once; give each feature once")
        _check_update(image, update.name, update.level, allow_downgrade=update.allow_downgrade)
        wanted[update.name] = update.level
    records = tuple(
        _finalized(name, level)
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
        hint = f"did you mean {near}?" if near else f"features are {', '.join(FEATURES)}"
        raise FeatureUpdateFailed(f"unknown feature {name!r}; {hint}")
    present = finalized_level(image, name)
    if level < present and not allow_downgrade:
        raise FeatureUpdateFailed(
            f"{name} is at level {present}, and {level} is a downgrade; allow downgrades to set it"
        )
    if not row.level_min <= level <= row.level_max:
        raise FeatureUpdateFailed(
            f"the controller supports {name} {row.level_min}..{row.level_max}, not {level}"
        )
    for broker in image.sorted_brokers():
        low, high = _levels_of(broker, row)
        if not low <= level <= high:
            raise FeatureUpdateFailed(
                f"broker {broker.id} supports {name} {low}..{high}, not {level}; upgrade it, or"
                " unregister it if it does not come back"
            )


def _levels_of(broker: BrokerImage, row: Feature) -> tuple[int, int]:
    """Return the levels of a feature that a broker supports. A broker without features has an
    older release, which supports the levels up to the default."""
    if not broker.features:
        return row.level_min, row.default
    for name, low, high in broker.features:
        if name == row.name:
            return low, high
    return 0, 0
