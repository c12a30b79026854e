"""The bounds of a data directory: segments, remembered producers, key maps, truncations.

Each bound is drawn with a probability of its own. More often than not it is the usual one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from quorumlog.records.compression import Codec
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.storage import DirectoryConfig, FlushPolicy, LogConfig

DIRECTORY: Final = DirectoryConfig(
    write_group_bytes_max=1_200,
    inline_write_bytes_max=600,
    checkpoint_interval_ms=50,
    checkpoint_flush_bytes_max=1_000,  # less than is appended between two checkpoints
    checkpoint_flush_ms_max=300,
    retention_check_interval_ms=10**9,  # cleaning is triggered explicitly
    clean_slice_bytes=900,
)
SMALL: Final = LogConfig(
    segment_bytes=2_600,
    index_interval_bytes=150,
    message_bytes_max=2_500,
    segment_ms=10**12,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
SURE: Final = replace(SMALL, flush_policy=FlushPolicy.FSYNC)
CONFIGS: Final = {
    "sure-0": SURE,  # every response implies durability
    "fast-0": replace(  # flushed data, and data below a checkpoint, are durable
        SMALL,
        compression_type=Codec.LZ4,
        log_append_time=True,
        retention_bytes=4_000,
        file_delete_delay_ms=0,
    ),
    "gaps-0": replace(SMALL, compacted=True),  # a follower's log: a leader's offsets, with gaps
    "gone-0": replace(SURE, retention_ms=1),  # deleted and created again; its records are too old
    "once-0": replace(SMALL, retention_bytes=6_000),  # producers repeat batches
    "keys-0": replace(SURE, compacted=True, file_delete_delay_ms=0),
}
SEGMENT_BYTES: Final = 1_100  # of small segments: about two batches
PRODUCERS: Final = 2  # remembered ones, fewer than there are
KEY_MAP_BYTES: Final = 1_024  # 42 slots
KEYS: Final = 400  # more than the key map has slots


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageBounds:
    """The bounds of one run."""

    directory: DirectoryConfig = DIRECTORY
    configs: Mapping[str, LogConfig]
    keys: int = 4  # of compacted logs
    records_max: int = 3  # of one batch
    is_transactional: bool = False  # transactions in the log "keys-0"
    is_unclean: bool = False  # truncations remove committed records, as after unclean elections
    damages_snapshots: bool = False  # producer snapshots of the log "once-0"

    @property
    def producers_max(self) -> int:
        """The number of producers that a log remembers."""
        return self.directory.producers_max

    @property
    def large_max(self) -> int:
        """The largest bytes of values in one batch."""
        segment_bytes = min(config.segment_bytes for config in self.configs.values())
        return segment_bytes - 400 - 15 * (self.records_max - 3)


USUAL: Final = StorageBounds(configs=CONFIGS)


def draw_bounds(entropy: SimEntropy) -> StorageBounds:
    """Draw the bounds of a run."""
    configs, directory = CONFIGS, DIRECTORY
    if entropy.stream("segments").chance(0.3):
        configs = {
            name: replace(config, segment_bytes=SEGMENT_BYTES, message_bytes_max=SEGMENT_BYTES)
            for name, config in configs.items()
        }
    if entropy.stream("producers").chance(0.3):
        directory = replace(directory, producers_max=PRODUCERS)
    has_small_map = entropy.stream("key map").chance(0.3)
    if has_small_map:
        directory = replace(directory, clean_buffer_bytes=KEY_MAP_BYTES)
    is_unclean = entropy.stream("unclean").chance(0.3)
    return StorageBounds(
        directory=directory,
        configs=configs,
        keys=KEYS if has_small_map else 4,
        records_max=30 if has_small_map else 3,
        # A truncation may remove the batch for which a compaction removed the one before it. Then
        # the producer's last sequence is missing.
        is_transactional=not is_unclean and entropy.stream("transactions").chance(0.4),
        is_unclean=is_unclean,
        damages_snapshots=entropy.stream("damage").chance(0.3),
    )
