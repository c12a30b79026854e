"""What a log and a data directory are configured by.

Field's name of each value in its comment. Values are checked once, here; a topic's configs arrive
as strings that the metadata layer's table of topic configs has already validated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from ..errors import InvalidConfig
from ..records.validate import ValidationMode

Choice = TypeVar("Choice", bound=StrEnum)

MIB: Final = 1024 * 1024
SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""Positions in an index file are signed 32-bit numbers in the field's tools."""


class FlushPolicy(StrEnum):
    """What an acknowledgement promises of the disk."""

    REPLICATED = "replicated"  # the in-sync replicas have it in memory
    FSYNC = "fsync"  # the in-sync replicas have it on their disks


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How one log is kept."""

    segment_bytes: int = 1024 * MIB  # segment.bytes: roll before a segment grows beyond it
    segment_ms: int = 7 * 24 * 3600 * 1000  # segment.ms: roll when a segment spans more time
    index_bytes_max: int = 10 * MIB  # segment.index.bytes: roll when an index is this large
    index_interval_bytes: int = 4096  # index.interval.bytes: one index entry per so many bytes
    message_bytes_max: int = MIB + 12  # max.message.bytes: largest batch a client may send
    inflate_bytes_max: int = 64 * MIB  # what one compressed batch may inflate to
    flush_policy: FlushPolicy = FlushPolicy.REPLICATED  # flush.policy
    record_validation: ValidationMode = ValidationMode.FULL  # record.validation
    compacted: bool = False  # cleanup.policy has "compact": offsets may have gaps

    def __post_init__(self) -> None:
        require("segment.bytes", self.segment_bytes, 61, SEGMENT_BYTES_MAX)
        require("segment.ms", self.segment_ms, 1, 2**63 - 1)
        require("segment.index.bytes", self.index_bytes_max, 12, SEGMENT_BYTES_MAX)
        require("index.interval.bytes", self.index_interval_bytes, 0, SEGMENT_BYTES_MAX)
        require("max.message.bytes", self.message_bytes_max, 61, SEGMENT_BYTES_MAX)

    @staticmethod
    def from_topic_configs(configs: Mapping[str, str]) -> "LogConfig":
        """Read a topic's configs; keys that are not storage's are skipped, absent ones default.

        Raises InvalidConfig for a value that does not parse.
        """
        default = LogConfig()
        return LogConfig(
            segment_bytes=whole(configs, "segment.bytes", default.segment_bytes),
            segment_ms=whole(configs, "segment.ms", default.segment_ms),
            index_bytes_max=whole(configs, "segment.index.bytes", default.index_bytes_max),
            index_interval_bytes=whole(
                configs, "index.interval.bytes", default.index_interval_bytes
            ),
            message_bytes_max=whole(configs, "max.message.bytes", default.message_bytes_max),
            flush_policy=choice(
                FlushPolicy, "flush.policy", configs.get("flush.policy", default.flush_policy)
            ),
            record_validation=choice(
                ValidationMode,
                "record.validation",
                configs.get("record.validation", default.record_validation),
            ),
            compacted="compact" in configs.get("cleanup.policy", "delete").split(","),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """How one data directory is worked."""

    write_group_bytes_max: int = MIB
    """Bytes of one write group; a larger batch is a group of its own. An fsync log has at most two
    groups un-synced, so this bounds both a torn tail and the latency one fsync adds."""

    write_bytes_max: int = 4 * MIB
    """Bytes of one write of a log that does not flush each: what queues during a write leaves with
    the next, so that a busy loop does not hold the disk up batch by batch."""

    inline_write_bytes_max: int = 64 * 1024
    """A write up to this size is done on the loop: into the page cache it takes less than handing
    it to a thread. Larger ones go to the write lane."""

    queue_bytes_max: int = 64 * MIB
    """Bytes of batches that wait for their write; beyond it appends raise Overloaded."""

    checkpoint_interval_ms: int = 1000
    """Under load, logs are flushed and recovery points stored this often."""

    open_files_max: int = 1000  # files kept open, least recently used closed first
    index_cache_bytes: int = 32 * MIB  # indexes of inactive segments kept in memory
    cpu_lane_bytes_min: int = 64 * 1024
    """Compressed batches above this size are validated in the cpu lane."""

    def __post_init__(self) -> None:
        require("write_group_bytes_max", self.write_group_bytes_max, 1, 2**40)
        require("write_bytes_max", self.write_bytes_max, 1, 2**40)
        require("queue_bytes_max", self.queue_bytes_max, 1, 2**40)
        require("checkpoint_interval_ms", self.checkpoint_interval_ms, 1, 2**40)
        require("open_files_max", self.open_files_max, 1, 2**31)


def whole(configs: Mapping[str, str], key: str, default: int) -> int:
    """Return a config as a whole number, or raise InvalidConfig."""
    text = configs.get(key)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidConfig(f"{key} must be a whole number, not {text!r}") from None


def choice(kind: type[Choice], key: str, text: str) -> Choice:
    """Return the member of an enum, or raise InvalidConfig that lists them."""
    try:
        return kind(text)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise InvalidConfig(f"{key} must be one of {names}, not {text!r}") from None


def require(key: str, value: int, least: int, most: int) -> None:
    """Raise InvalidConfig unless least <= value <= most."""
    if not least <= value <= most:
        raise InvalidConfig(f"{key} must be in [{least}, {most}], not {value}")
