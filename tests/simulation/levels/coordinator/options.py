"""Options of one run of level `coordinator`, drawn from the seed, and its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from immutables import Map

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.ids import Epoch, NodeId, Offset, TopicId
from quorumlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from quorumlog.simulation.entropy import SimEntropy

START_MS: Final = 1_700_000_000_000
TOPICS: Final = ("t", "u", "w", "__consumer_offsets")
MEMBERS_A_GROUP: Final = 5
_PARTITION: Final = PartitionImage(
    replicas=(NodeId(1),),
    isr=(NodeId(1),),
    leader=NodeId(1),
    leader_epoch=Epoch(0),
    partition_epoch=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """The options of one run."""

    config: GroupConfig
    steps: int
    start_ms: int = START_MS
    producer_expiration_ms: int = 60_000
    producers_max: int = 100
    is_transactional: bool = False
    partitions: Mapping[str, int]  # by topic
    mean_wait_ms: int = 300

    def image(self) -> MetadataImage:
        """Return the first metadata."""
        return image_of({name: (count, 0) for name, count in self.partitions.items()})


def draw_options(entropy: SimEntropy) -> CoordinatorOptions:
    """Draw the options."""
    partitions = {name: 1 + entropy.below(6) for name in TOPICS[:2]}
    return CoordinatorOptions(
        config=GroupConfig(
            initial_delay_ms=(0, 500, 3_000)[entropy.below(3)],
            size_max=(2, 3, 100, 100)[entropy.below(4)],
            session_timeout_min_ms=1_000,
            session_timeout_max_ms=30_000,
            offsets_retention_minutes=1,
            offsets_check_ms=(5_000, 20_000)[entropy.below(2)],
            note_bytes_max=8,
            consumer_session_ms=(6_000, 20_000)[entropy.below(2)],
            consumer_heartbeat_ms=1_000,
            assignors=(("uniform", "range"), ("range", "uniform"))[entropy.below(2)],
            pattern_refresh_ms=10_000,
            migration=(*("bidirectional",) * 5, "upgrade", "downgrade", "disabled")[
                entropy.below(8)
            ],
        ),
        steps=400,
        producers_max=(2, 100)[entropy.below(2)],
        is_transactional=entropy.chance(0.4),
        partitions={**partitions, "__consumer_offsets": 1},
        mean_wait_ms=(50, 300, 1_000)[entropy.below(3)],
    )


def image_of(
    topics: Mapping[str, tuple[int, int]],
    group_configs: Mapping[str, Mapping[str, str]] | None = None,
    offset: int = 1,
) -> MetadataImage:
    """Return metadata with topics of so many partitions, in their n-th incarnation."""
    images = [
        TopicImage(
            id=TopicId(f"{name[-1]}.{life}".encode().ljust(16, b"-")),
            name=name,
            partitions=Map(dict.fromkeys(range(count), _PARTITION)),
            configs=Map(),
        )
        for name, (count, life) in sorted(topics.items())
    ]
    configs = {name: Map(values) for name, values in (group_configs or {}).items()}
    return replace(
        EMPTY_IMAGE,
        offset=Offset(offset),
        topics_by_id=Map({each.id: each for each in images}),
        topics_by_name=Map({each.name: each.id for each in images}),
        group_configs=Map(configs),
    )
