"""Configs of consumer groups: the table, refused changes, storage in the metadata."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import InvalidConfig, InvalidGroupId, InvalidRequest
from quorumlog.metadata import (
    AlterGroupConfigs,
    ConfigType,
    Decision,
    GroupConfigsAltered,
    ListChange,
)
from quorumlog.metadata.decisions import configs
from quorumlog.metadata.group_configs import (
    ASSIGNOR,
    BROKER_SETTINGS,
    CONFIGURED_ID_CHARACTERS_MAX,
    GROUP_CONFIGS,
    GROUP_LENGTH_MAX,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    check_group_changes,
)
from quorumlog.metadata.snapshots import image_of, image_slices
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.server.config import settings


def alter(
    cluster: Cluster,
    *changes: tuple[str, str | None],
    group: str = "g",
    validate_only: bool = False,
    replace: bool = False,
) -> Decision:
    return cluster.do(
        AlterGroupConfigs(
            group=group, changes=changes, validate_only=validate_only, replace=replace
        )
    )


@pytest.mark.parametrize("name", GROUP_CONFIGS)
def test_every_row_is_complete_and_its_default_is_that_of_a_setting(name: str) -> None:
    row = GROUP_CONFIGS[name]
    assert row.doc.endswith(".")
    assert row.type is not ConfigType.WHOLE or row.unit
    assert check_group_changes([(name, row.default)], {}) == {name: row.default}
    assert list(GROUP_CONFIGS) == sorted(GROUP_CONFIGS)
    (setting,) = [each for each in settings() if each.name == BROKER_SETTINGS[name]]
    default = setting.default[0] if isinstance(setting.default, tuple) else setting.default
    assert row.default == str(default)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("consumer.session.timeout", "1")], r"did you mean consumer.session.timeout.ms\?"),
        ([("retention.ms", "1")], "unknown group config 'retention.ms'"),
        ([(SESSION_TIMEOUT, "soon")], "soon"),
        ([(SESSION_TIMEOUT, "5999")], "6000..3600000"),
        ([(HEARTBEAT_INTERVAL, "99")], "100..600000"),
        ([(ASSIGNOR, "sticky")], "uniform or range"),
        ([(SESSION_TIMEOUT, "9000"), (SESSION_TIMEOUT, None)], "more than once"),
        ([(SESSION_TIMEOUT, "9000"), (HEARTBEAT_INTERVAL, "9000")], "not above"),
        ([("x" * 300, "1")], "300 characters"),
    ],
)
def test_bad_changes_are_refused_with_the_reason(
    changes: list[tuple[str, str | None]], why: str
) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check_group_changes(changes, {})


def test_session_must_exceed_the_heartbeat_interval_that_is_set_already() -> None:
    present = {HEARTBEAT_INTERVAL: "9000"}
    with pytest.raises(InvalidConfig, match="not above"):
        check_group_changes([(SESSION_TIMEOUT, "9000")], present)
    wanted: list[tuple[str, str | None]] = [(SESSION_TIMEOUT, "9000"), (HEARTBEAT_INTERVAL, None)]
    assert check_group_changes(wanted, present) == dict(sorted(wanted))


def test_session_and_heartbeat_interval_are_compared_with_the_default_of_an_absent_one() -> None:
    with pytest.raises(InvalidConfig, match=r"45000 is not above .*=45000"):
        check_group_changes([(HEARTBEAT_INTERVAL, "45000")], {})
    present = {SESSION_TIMEOUT: "100000", HEARTBEAT_INTERVAL: "60000"}
    with pytest.raises(InvalidConfig, match=r"45000 is not above .*=60000"):
        check_group_changes([(SESSION_TIMEOUT, None)], present)
    assert check_group_changes([(HEARTBEAT_INTERVAL, None)], present) == {HEARTBEAT_INTERVAL: None}
    stored_before = {HEARTBEAT_INTERVAL: "60000"}  # by an earlier release
    assert check_group_changes([(ASSIGNOR, "range")], stored_before) == {ASSIGNOR: "range"}


def test_configs_of_each_group_are_stored_by_themselves(cluster: Cluster) -> None:
    cluster.start(1, 2)
    decision = alter(cluster, (SESSION_TIMEOUT, "9000"), (ASSIGNOR, "range"))
    assert decision.reply == GroupConfigsAltered(
        configs=((ASSIGNOR, "range"), (SESSION_TIMEOUT, "9000"))
    )
    assert decision.brokers == (1, 2)
    alter(cluster, (ASSIGNOR, "uniform"), group="other")
    alter(cluster, (SESSION_TIMEOUT, None))
    stored = {name: dict(configs) for name, configs in cluster.image.group_configs.items()}
    assert stored == {"g": {ASSIGNOR: "range"}, "other": {ASSIGNOR: "uniform"}}
    alter(cluster, (ASSIGNOR, None))
    assert list(cluster.image.group_configs) == ["other"]


def test_a_repeat_and_a_validation_change_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    alter(cluster, (ASSIGNOR, "range"))
    assert alter(cluster, (ASSIGNOR, "range")).records == ()
    checked = alter(cluster, (ASSIGNOR, "uniform"), validate_only=True)
    assert checked.records == ()
    assert checked.reply == GroupConfigsAltered(configs=((ASSIGNOR, "uniform"),))
    assert dict(cluster.image.group_configs["g"]) == {ASSIGNOR: "range"}
    with pytest.raises(InvalidRequest):
        alter(cluster)


def test_replacement_deletes_the_configs_that_are_not_named(cluster: Cluster) -> None:
    cluster.start(1)
    alter(cluster, (SESSION_TIMEOUT, "9000"), (ASSIGNOR, "range"))
    reply = alter(cluster, (SESSION_TIMEOUT, "8000"), replace=True).reply
    assert reply == GroupConfigsAltered(configs=((SESSION_TIMEOUT, "8000"),))


def test_snapshot_contains_the_configs_of_every_group(cluster: Cluster) -> None:
    cluster.start(1)
    for group in ("h", "g"):
        alter(cluster, (SESSION_TIMEOUT, "9000"), (ASSIGNOR, "range"), group=group)
    image = cluster.image
    values = [value for values in image_slices(image) for value in values]
    assert image_of(values, end_offset=image.offset + 1, epoch=image.epoch) == image
    written = [pb.MetadataRecord.FromString(value).group_config for value in values]
    assert [(each.group, each.name) for each in written if each.name] == [
        ("g", ASSIGNOR),
        ("g", SESSION_TIMEOUT),
        ("h", ASSIGNOR),
        ("h", SESSION_TIMEOUT),
    ]


def test_no_more_groups_have_configs_than_the_limit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "CONFIGURED_GROUPS_MAX", 2)
    cluster.start(1)
    for group in "ab":
        alter(cluster, (ASSIGNOR, "range"), group=group)
    for validate_only in (False, True):
        with pytest.raises(InvalidRequest, match="limit of 2 groups"):
            alter(cluster, (ASSIGNOR, "range"), group="c", validate_only=validate_only)
    alter(cluster, (SESSION_TIMEOUT, "9000"), group="a")  # the configured groups may change theirs
    alter(cluster, (ASSIGNOR, None), group="c")
    alter(cluster, (ASSIGNOR, None), group="b")
    alter(cluster, (ASSIGNOR, "range"), group="c")
    assert sorted(cluster.image.group_configs) == ["a", "c"]


def test_ids_of_groups_with_configs_have_a_limit_in_all(cluster: Cluster) -> None:
    cluster.start(1)
    longest = "x" * (GROUP_LENGTH_MAX - 3)
    fits = CONFIGURED_ID_CHARACTERS_MAX // GROUP_LENGTH_MAX
    for number in range(fits):
        alter(cluster, (ASSIGNOR, "range"), group=f"{number:03}{longest}")
    with pytest.raises(InvalidRequest, match="characters"):
        alter(cluster, (ASSIGNOR, "range"), group=f"{fits:03}{longest}")
    alter(cluster, (ASSIGNOR, "range"), group="g")


def test_group_without_a_valid_id_and_lists_are_refused(cluster: Cluster) -> None:
    cluster.start(1)
    for group in ("", "x" * 9_000):
        with pytest.raises(InvalidGroupId):
            alter(cluster, (ASSIGNOR, "range"), group=group)
    change = ListChange(name=ASSIGNOR, parts=("range",))
    with pytest.raises(InvalidConfig, match="is not a list"):
        cluster.do(AlterGroupConfigs(group="g", changes=(), lists=(change,)))
