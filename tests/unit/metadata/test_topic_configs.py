"""The table of topic configs: valid values, refusals and defaults."""

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.metadata.topic_configs import (
    TOPIC_CONFIGS,
    ConfigType,
    check_config,
    check_configs,
    effective_configs,
)
from quorumlog.storage.config import LogConfig


@pytest.mark.parametrize("row", TOPIC_CONFIGS.values(), ids=lambda row: row.name)
def test_every_row_is_complete_and_its_default_is_legal(row) -> None:  # type: ignore[no-untyped-def]
    assert row.doc.endswith(".")
    if row.type is ConfigType.WHOLE:
        assert row.unit
    if row.default:
        assert check_config(row.name, row.default) == row.default


def test_table_is_in_ascending_order() -> None:
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)


def test_values_are_returned_in_canonical_form() -> None:
    assert check_config("retention.ms", " 0060000 ") == "60000"
    assert check_config("unclean.leader.election.enable", "FALSE") == "false"
    assert check_config("cleanup.policy", "delete, compact,delete") == "delete,compact"
    assert check_config("cleanup.policy", "compact,delete") == "compact,delete"
    assert check_config("cleanup.policy", " ") == ""
    assert check_config("min.cleanable.dirty.ratio", "0.50") == "0.5"
    assert check_config("min.cleanable.dirty.ratio", "1.") == "1"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (
            "retention.mss",
            "1",
            r"unknown topic config 'retention.mss'; did you mean retention.ms\?",
        ),
        ("Segment.Bytes", "1", r"did you mean segment.bytes\?"),
        ("xyz", "1", "configs are cleanup.policy"),
        ("retention.ms", "soon", "whole number of ms, .*, or -1 for no limit$"),
        (
            "retention.ms",
            "-2",
            "retention.ms is -2; give a whole number of ms, 0 or more, or -1 for no limit",
        ),
        ("retention.ms", "1e3", "retention.ms is '1e3'; give a whole number of ms, or one with"),
        ("retention.ms", "", "retention.ms is ''; give a whole number"),
        ("retention.ms", "1.5d", "retention.ms is '1.5d'; give a whole number"),
        ("retention.ms", "7m", "m is ambiguous: write min for minutes"),
        ("retention.ms", "999999999999d", "retention.ms is .*; give a whole number of ms"),
        (
            "retention.ms",
            "9223372036854775808",
            "give a whole number of ms, 0 or more, or -1 for no limit",
        ),
        (
            "segment.bytes",
            "1",
            r"segment.bytes is 1; give a whole number of bytes, 1024\.\.2147483647",
        ),
        ("segment.bytes", "2GiB", "segment.bytes is 2147483648; give"),
        ("segment.bytes", "64MB", "MB is ambiguous: write MiB for powers of 1024"),
        ("segment.bytes", "64 mib", "give a whole number of bytes, or one with B, KiB"),
        ("min.insync.replicas", "0", "give a whole number of replicas, 1"),
        ("min.insync.replicas", "1KiB", "give a whole number, 1..2147483647 replicas"),
        ("flush.policy", "sometimes", "flush.policy is 'sometimes'; give replicated or fsync"),
        ("cleanup.policy", "shred", "cleanup.policy is 'shred'; give any of delete, compact"),
        ("cleanup.policy", "delete,shred", "cleanup.policy is 'delete,shred'; give any of delete"),
        ("cleanup.policy", "delete,,compact", "is 'delete,,compact'; give any of delete"),
        ("cleanup.policy", ",", "is ','; give any of delete, compact, or an empty list"),
        ("min.cleanable.dirty.ratio", "1.01", "'1.01'; give a number from 0 to 1, such as 0.5"),
        ("min.cleanable.dirty.ratio", "-0.5", "'-0.5'; give a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "'nan'; give a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "1e-1", "'1e-1'; give a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "", "give a number from 0 to 1"),
        ("unclean.leader.election.enable", "yes", "is 'yes'; give true or false"),
    ],
)
def test_bad_configs_are_refused_with_the_reason(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check_config(name, value)


def test_a_config_given_twice_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="more than once"):
        check_configs([("retention.ms", "1"), ("retention.ms", "2")], replication_factor=1)


def test_more_in_sync_replicas_than_replicas_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="replication factor 1"):
        check_configs([("min.insync.replicas", "2")], replication_factor=1)
    assert check_configs([("min.insync.replicas", "2")], replication_factor=2)


@pytest.mark.parametrize(
    ("set_configs", "replication_factor", "flush_policy", "in_sync"),
    [
        ({}, 1, "fsync", "1"),
        ({}, 2, "fsync", "1"),
        ({}, 3, "replicated", "2"),
        ({"min.insync.replicas": "1"}, 3, "fsync", "1"),
        ({"min.insync.replicas": "2"}, 2, "replicated", "2"),
        ({"flush.policy": "replicated"}, 1, "replicated", "1"),
    ],
)
def test_flush_policy_defaults_to_fsync_if_one_replica_may_acknowledge(
    set_configs: dict[str, str], replication_factor: int, flush_policy: str, in_sync: str
) -> None:
    effective = effective_configs(set_configs, replication_factor=replication_factor)
    assert effective["flush.policy"] == flush_policy
    assert effective["min.insync.replicas"] == in_sync


def test_storage_takes_every_effective_config() -> None:
    config = LogConfig.from_topic_configs(effective_configs({}, replication_factor=1))
    defaults = LogConfig()
    assert config.flush_policy == "fsync"
    assert config.segment_bytes == defaults.segment_bytes
    assert config.message_bytes_max == defaults.message_bytes_max
    assert config.index_bytes_max == defaults.index_bytes_max
    assert config.min_cleanable_dirty_ratio == defaults.min_cleanable_dirty_ratio
    assert config.delete_retention_ms == defaults.delete_retention_ms
    assert config.max_compaction_lag_ms == defaults.max_compaction_lag_ms
    assert config.file_delete_delay_ms == defaults.file_delete_delay_ms


def test_topic_is_retained_for_a_week_and_a_log_without_a_topic_forever() -> None:
    config = LogConfig.from_topic_configs(effective_configs({}, replication_factor=1))
    assert (config.retention_ms, config.retention_bytes) == (7 * 24 * 3600 * 1000, -1)
    assert (LogConfig().retention_ms, LogConfig().retention_bytes) == (-1, -1)
    both = {"cleanup.policy": "compact,delete"}
    config = LogConfig.from_topic_configs(effective_configs(both, replication_factor=1))
    assert config.compacted
    assert config.delete_enabled


def test_an_empty_cleanup_policy_neither_deletes_nor_compacts() -> None:
    effective = effective_configs({"cleanup.policy": ""}, replication_factor=1)
    assert effective["cleanup.policy"] == ""
    config = LogConfig.from_topic_configs(effective)
    assert (config.delete_enabled, config.compacted) == (False, False)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x" * 10_000_000, "1", "the config name has 10000000 characters; give at most 249"),
        ("retention.ms", "9" * 10_000_000, "retention.ms has 10000000 characters; give"),
        ("flush.policy", "x" * 10_000_000, "flush.policy has 10000000 characters; give"),
    ],
    ids=["name", "number", "choice"],
)
def test_oversized_names_and_values_are_refused_unread(name: str, value: str, said: str) -> None:
    """The search for a similar name of megabytes would block the controller, and its error would be
    too large."""
    with pytest.raises(InvalidConfig) as caught:
        check_configs([(name, value)], replication_factor=1)
    assert said in caught.value.message
    assert len(caught.value.message) < 300
