"""Configs of a group in the metadata: the coordinator uses them, also after a load."""

from dataclasses import replace

import pytest
from immutables import Map

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.requests import ConsumerBeat, ConsumerHeartbeat, DescribeGroup
from quorumlog.metadata import MetadataImage

from .offsets_image import ID, image_of
from .transactional_shard import TransactionalShard

CONFIG = GroupConfig(consumer_session_ms=45_000, consumer_heartbeat_ms=5_000)


def image(**configs: str) -> MetadataImage:
    """Return metadata with these configs of group g. `_` in a name stands for a dot."""
    named = Map({name.replace("_", "."): value for name, value in configs.items()})
    return replace(image_of({"t": ID}), group_configs=Map({"g": named} if named else {}))


def beat(shard: TransactionalShard, epoch: int = 0, group: str = "g") -> ConsumerBeat:
    request = ConsumerHeartbeat(
        group=group,
        member_id="m",
        member_epoch=epoch,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5_000,
        topics=frozenset({"t"}),
        owned={},
    )
    return shard.ask(request)


def timings(found: ConsumerBeat) -> tuple[int, int]:
    return found.session_timeout_ms, found.heartbeat_interval_ms


SHORT = image(consumer_session_timeout_ms="9000", consumer_heartbeat_interval_ms="700")


def test_group_has_its_own_timings_and_others_those_of_the_broker() -> None:
    shard = TransactionalShard(config=CONFIG, image=SHORT)
    assert timings(beat(shard)) == (9_000, 700)
    assert timings(beat(shard, group="other")) == (45_000, 5_000)
    shard.expire(8_999)
    assert shard.states() == {"g": "Stable", "other": "Stable"}
    shard.expire(1)
    assert shard.states() == {"g": "Empty", "other": "Stable"}


def test_changed_config_applies_with_the_next_heartbeat() -> None:
    shard = TransactionalShard(config=CONFIG)
    epoch = beat(shard).member_epoch
    shard.image = SHORT
    assert timings(beat(shard, epoch)) == (9_000, 700)
    shard.image = image(consumer_heartbeat_interval_ms="700")
    assert timings(beat(shard, epoch)) == (45_000, 700)
    shard.image = image()
    assert timings(beat(shard, epoch)) == (45_000, 5_000)


@pytest.mark.parametrize("session", ["9000", "100000"])
def test_changed_session_timeout_does_not_change_the_time_since_the_last_request(
    session: str,
) -> None:
    shard = TransactionalShard(config=CONFIG)
    epoch = beat(shard).member_epoch
    shard.expire(1_000)
    shard.image = image(consumer_session_timeout_ms=session)
    assert shard.ask(DescribeGroup(group="g")).members[0].silent_ms == 1_000
    beat(shard, epoch)
    shard.expire(2_000)
    assert shard.ask(DescribeGroup(group="g")).members[0].silent_ms == 2_000


def test_loaded_group_has_the_session_of_its_config() -> None:
    long = image(consumer_session_timeout_ms="100000")
    shard = TransactionalShard(config=CONFIG, image=long)
    beat(shard)
    loaded = shard.reload()
    loaded.expire(99_000)
    assert loaded.states() == {"g": "Stable"}
    loaded.expire(2_000)
    assert loaded.states() != {"g": "Stable"}


def test_group_has_an_assignor_of_its_own_unless_members_choose() -> None:
    shard = TransactionalShard(config=CONFIG, image=image(consumer_assignor="range"))
    beat(shard)
    beat(shard, group="other")
    assert shard.ask(DescribeGroup(group="g")).protocol == "range"
    assert shard.ask(DescribeGroup(group="other")).protocol == "uniform"


def test_assignor_that_the_broker_does_not_allow_is_ignored() -> None:
    config = replace(CONFIG, assignors=("uniform",))
    shard = TransactionalShard(config=config, image=image(consumer_assignor="range"))
    beat(shard)
    assert shard.ask(DescribeGroup(group="g")).protocol == "uniform"
