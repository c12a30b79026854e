"""Local clusters before their start: formation, growth and refusals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit.command import invoke

from quorumlog.cli.cluster.formation import (
    PORTS,
    Shape,
    check_settings,
    form,
    free_ports,
    grown,
    new_cluster,
    port_of,
)
from quorumlog.cli.cluster.processes import ProcessIdentity
from quorumlog.cli.cluster.state import (
    BROKER,
    CONTROLLER,
    LocalCluster,
    load,
    load_if_any,
    locked,
    store,
)
from quorumlog.errors import DirectoryInUse, DirectoryUnusable, InvalidConfig, InvalidRequest
from quorumlog.server.main import load_config


def voting(cluster: LocalCluster, node_id: int) -> tuple[str, ...]:
    return load_config(cluster.config_file(node_id)).controller_voters


def disk(cluster: LocalCluster, node_id: int) -> str:
    """Return the directory id of a node."""
    text = Path(cluster.data_dir(node_id), "meta.properties").read_text()
    return next(line.partition("=")[2] for line in text.split() if "directory.id" in line)


def test_state_round_trip(tmp_path: Path) -> None:
    cluster = new_cluster(str(tmp_path), Shape(controllers=1, brokers=1), ["r1"])
    running = replace(cluster.nodes[0], process=ProcessIdentity(7, "boot/9"))
    cluster = replace(cluster.with_node(running), settings=("a=b",), is_formed=True)
    store(cluster)
    assert load(str(tmp_path)) == cluster


def test_cluster_state_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    store(new_cluster(str(tmp_path), Shape(nodes=1)))
    path = tmp_path / "cluster.json"
    row = json.loads(path.read_text())
    del row["nodes"][0]["http"], row["nodes"][0]["rack"], row["racks"], row["replication"]
    del row["nodes"][0]["kafka"]
    path.write_text(json.dumps(row))
    cluster = form(load(str(tmp_path)))
    assert (cluster.nodes[0].http, cluster.nodes[0].kafka) == (None, None)
    assert load_config(cluster.config_file(1)).http_listener == ""
    assert load_config(cluster.config_file(1)).kafka_listeners == ()


def test_the_nodes_of_a_new_cluster_vote_and_have_ports_of_their_own(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(nodes=3)))
    assert cluster.is_formed
    assert [node.id for node in cluster.nodes] == [1, 2, 3]
    addresses = [
        address
        for node in cluster.nodes
        for address in (node.grpc, node.kafka, node.controller, node.http)
        if address
    ]
    assert len({port_of(address) for address in addresses}) == 12
    for node in cluster.nodes:
        assert load_config(cluster.config_file(node.id)).http_listener == node.http
        assert load_config(cluster.config_file(node.id)).kafka_listeners == (node.kafka,)
        assert voting(cluster, node.id) == cluster.voters
        assert cluster.voters[node.id - 1].endswith(disk(cluster, node.id))


def test_forming_again_changes_nothing(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(controllers=3)))
    disks = [disk(cluster, node.id) for node in cluster.nodes]
    assert form(load(str(tmp_path))) == cluster
    assert [disk(cluster, node.id) for node in cluster.nodes] == disks


def test_interrupted_formation_resumes_with_the_same_voters(tmp_path: Path) -> None:
    drawn = new_cluster(str(tmp_path), Shape(controllers=3))
    form(drawn)
    Path(drawn.data_dir(3), "meta.properties").unlink()
    store(drawn)  # as after a kill of the command before the third node
    formed = form(load(str(tmp_path)))
    assert disk(formed, 3) == drawn.voters[2].rpartition(":")[2]


def test_a_node_that_lost_its_disk_gets_another_one_without_a_vote(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(controllers=3)))
    before = disk(cluster, 2)
    Path(cluster.data_dir(2)).rename(tmp_path / "lost")
    form(load(str(tmp_path)))
    assert disk(cluster, 2) != before
    log = Path(cluster.data_dir(2), "__cluster_metadata-0")
    other = Path(cluster.data_dir(3), "__cluster_metadata-0")
    assert [path.name for path in log.glob("*.checkpoint")] == [
        path.name for path in other.glob("*.checkpoint")
    ]
    (mine,), (full,) = log.glob("*.checkpoint"), other.glob("*.checkpoint")
    assert mine.stat().st_size < full.stat().st_size, "it has no voters"


def test_a_cluster_grows_by_nodes_without_a_vote(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(controllers=3)))
    more = form(grown(cluster, Shape(controllers=5)))
    assert more.nodes[:3] == cluster.nodes
    assert voting(more, 4) == ()
    assert len(load_config(more.config_file(5)).controller_bootstrap) == 4
    assert load(str(tmp_path)) == more


def test_node_of_a_secure_cluster_has_an_audit_log(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(nodes=1), is_secure=True))
    security = load_config(cluster.config_file(1)).security
    assert security.audit_file == str(tmp_path / "node-1" / "audit.log")


def test_cluster_that_cannot_grow_is_unchanged(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(nodes=1), is_secure=True))
    profile = (cluster.security_folder / "client.toml").read_text()
    (cluster.security_folder / "ca.key").unlink()
    with pytest.raises(InvalidConfig, match=r"ca\.key"):
        form(grown(cluster, Shape(nodes=2)))
    assert load(str(tmp_path)) == cluster
    assert not Path(cluster.node_folder(2)).exists()
    assert (cluster.security_folder / "client.toml").read_text() == profile


def test_cluster_does_not_grow_with_an_invalid_setting_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(nodes=1)))
    monkeypatch.setenv("QUORUMLOG_KAFKA_CONNECTIONS_MAX", "many")
    result = invoke("cluster", "up", "--nodes", "2", "--data-dir", str(tmp_path))
    assert isinstance(result.exception, InvalidConfig | SystemExit)
    assert load(str(tmp_path)) == cluster


@pytest.mark.parametrize("shape", [Shape(controllers=2), Shape(nodes=3), Shape(nodes=4)])
def test_a_cluster_neither_shrinks_nor_changes_its_nodes(tmp_path: Path, shape: Shape) -> None:
    cluster = new_cluster(str(tmp_path), Shape(controllers=3))
    with pytest.raises(InvalidRequest, match="3 controllers, not "):
        grown(cluster, shape)


def test_brokers_alone_follow_the_controllers_and_never_vote(tmp_path: Path) -> None:
    cluster = form(new_cluster(str(tmp_path), Shape(controllers=3, brokers=2), ["a", "b", "c"]))
    assert [node.roles for node in cluster.nodes] == [CONTROLLER] * 3 + [BROKER] * 2
    assert [node.rack for node in cluster.nodes] == ["", "", "", "a", "b"]
    controllers = {node.controller for node in cluster.nodes[:3]}
    assert len(cluster.voters) == 3
    for node in cluster.nodes:
        config = load_config(cluster.config_file(node.id))
        assert config.roles == node.roles
        assert config.rack == node.rack
        assert config.controller.replication_factor_default == 2
        assert set(config.controller_bootstrap) == controllers - {node.controller}
        assert config.controller_voters == (cluster.voters if node.is_controller else ())
    assert all(node.grpc for node in cluster.nodes[3:])
    more = form(grown(cluster, Shape(brokers=4)))
    assert more.nodes[:5] == cluster.nodes
    assert [(node.roles, node.rack) for node in more.nodes[5:]] == [(BROKER, "c"), (BROKER, "a")]
    assert load_config(more.config_file(7)).controller_voters == ()


@pytest.mark.parametrize(
    ("shape", "replication"),
    [
        (Shape(nodes=1), 1),
        (Shape(nodes=2), 2),
        (Shape(nodes=5), 3),
        (Shape(controllers=3, brokers=4), 3),
        (Shape(controllers=3), 1),
    ],
)
def test_topics_have_as_many_replicas_as_there_are_brokers_up_to_three(
    tmp_path: Path, shape: Shape, replication: int
) -> None:
    cluster = form(new_cluster(str(tmp_path), shape))
    config = load_config(cluster.config_file(1))
    assert config.controller.replication_factor_default == cluster.replication == replication


def test_cluster_without_controllers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="a cluster needs controllers"):
        new_cluster(str(tmp_path), Shape(brokers=2))


def test_ports_are_free_and_distinct() -> None:
    taken = free_ports(3, taken=())
    found = free_ports(20, taken=taken)
    assert len({*found, *taken}) == 23
    assert all(port in PORTS for port in found)


def test_folder_without_a_cluster_is_distinguished_from_a_damaged_file(tmp_path: Path) -> None:
    assert load_if_any(str(tmp_path)) is None
    with pytest.raises(InvalidRequest, match="has no cluster"):
        load(str(tmp_path))
    for text in ("", "[]", "{}", json.dumps({"version": 2})):
        (tmp_path / "cluster.json").write_text(text)
        with pytest.raises(DirectoryUnusable, match=r"cluster\.json"):
            load(str(tmp_path))


def test_two_commands_cannot_change_a_cluster_at_once(tmp_path: Path) -> None:
    with (
        locked(str(tmp_path)),
        pytest.raises(DirectoryInUse, match="another"),
        locked(str(tmp_path)),
    ):
        raise AssertionError("both commands have the lock")
    with locked(str(tmp_path)):
        pass
    with pytest.raises(InvalidRequest, match="has no cluster"), locked(str(tmp_path / "none")):
        pass


def test_unknown_node_is_refused_with_the_existing_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no node 4; its nodes are 1, 2, 3"):
        new_cluster(str(tmp_path), Shape(controllers=3)).node(4)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("fetch.bytes", "unknown setting fetch.bytes"),
        ("fetch.bytes.max=lots", "fetch.bytes.max"),
        ("controller.election.timeout.ms=100", "give at most 50"),
        ("node.id=4", "differs from node to node"),
        ("listeners.grpc=127.0.0.1:9094", "differs from node to node"),
    ],
)
def test_a_setting_that_no_node_could_start_with_is_refused(assignment: str, said: str) -> None:
    """Otherwise every later start would fail with it."""
    with pytest.raises((InvalidConfig, InvalidRequest), match=said):
        check_settings([assignment if "=" in assignment else f"{assignment}=1"], {})


def test_settings_are_checked_together_with_those_of_the_environment() -> None:
    check_settings(
        ["controller.election.timeout.ms=100"], {"QUORUMLOG_CONTROLLER_HEARTBEAT_MS": "20"}
    )
