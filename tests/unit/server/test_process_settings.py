"""The settings of `dev` and `server` from flags, environment, file and defaults."""

from pathlib import Path

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.server.config import node_config, settings
from quorumlog.server.main import DevOptions, load_config, resolve_dev, resolve_server
from quorumlog.settings import variable_of


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in settings():
        monkeypatch.delenv(variable_of(row.name), raising=False)


def test_every_setting_has_its_own_variable() -> None:
    names = [variable_of(row.name) for row in settings()]
    assert len(set(names)) == len(names)
    assert "QUORUMLOG_PRODUCE_INFLIGHT_BYTES_MAX" in names


def test_flags_override_variables_which_override_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data.dir = "/f"\nnode.id = 1\nnode.rack = "f"\nfetch.bytes.max = "8MiB"\n')
    monkeypatch.setenv("QUORUMLOG_NODE_ID", "2")
    monkeypatch.setenv("QUORUMLOG_NODE_RACK", "e")
    found = resolve_server(str(file), ["node.id=3"])
    config = node_config(found)
    assert (config.node_id, config.rack, config.data_dir) == (3, "e", "/f")
    assert config.requests.fetch_bytes_max == 8 << 20
    assert {str(found.origins[name]) for name in ("node.id", "node.rack", "data.dir")} == {
        "flag --set node.id",
        "environment QUORUMLOG_NODE_RACK",
        f"file {file}:1",
    }
    assert str(found.origins["shutdown.grace.ms"]) == "default"


def test_server_needs_no_file_if_the_environment_has_all_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUORUMLOG_DATA_DIR", "/e")
    assert load_config(None).data_dir == "/e"


def test_missing_setting_is_reported_with_every_source() -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_config(None)
    for way in ("data.dir", "--config", "--set data.dir=", "QUORUMLOG_DATA_DIR"):
        assert way in caught.value.message


def test_contradictory_settings_are_reported_with_their_source(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data.dir = "/f"\n[listeners]\ngrpc = "0.0.0.0:1"\n')
    with pytest.raises(
        InvalidConfig, match=r"node.toml:3: listeners.grpc: it is on every interface"
    ):
        load_config(str(file))
    assignments = ["advertised.grpc=h:1", "allow.insecure.listeners=true"]
    assert load_config(str(file), assignments).advertised_grpc == "h:1"


def test_command_line_table_of_the_file_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "quorumlog.toml"
    file.write_text('data.dir = "/f"\n[client]\nbootstrap = "h:1"\n')
    assert load_config(str(file)).data_dir == "/f"


def test_dev_has_a_default_for_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = resolve_dev(DevOptions())
    assert found["data.dir"] == str(tmp_path / "quorumlog-data")
    assert set(map(str, found.origins.values())) == {"default"}
    assert node_config(found).grpc_listener == "127.0.0.1:9094"


def test_flags_of_dev_override_only_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_LISTENERS_GRPC", "127.0.0.5:7000")
    monkeypatch.setenv("QUORUMLOG_DATA_DIR", "/e")
    found = resolve_dev(DevOptions(grpc_port=0, assignments=["node.rack=r"]))
    assert found["listeners.grpc"] == "127.0.0.5:0"
    assert str(found.origins["listeners.grpc"]) == "flag --grpc-port"
    assert (found["data.dir"], found["node.rack"]) == ("/e", "r")
    moved = resolve_dev(DevOptions(host="127.0.0.9", data_dir="/flag"))
    assert moved["listeners.grpc"] == "127.0.0.9:7000"
    assert moved["listeners.controller"] == "127.0.0.9:0"
    assert moved["data.dir"] == "/flag"


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (DevOptions(), "127.0.0.1:9093"),
        (DevOptions(host="127.0.0.9"), "127.0.0.9:9093"),
        (DevOptions(controller_port=7), "127.0.0.1:7"),
        (DevOptions(grpc_port=9000), "127.0.0.1:0"),
        (DevOptions(grpc_port=9000, host="127.0.0.9"), "127.0.0.9:0"),
        (DevOptions(grpc_port=9000, controller_port=9093), "127.0.0.1:9093"),
        (DevOptions(grpc_port=9000, assignments=["listeners.controller=h:1"]), "h:1"),
    ],
)
def test_a_second_dev_node_takes_a_free_controller_port(options: DevOptions, address: str) -> None:
    assert resolve_dev(options)["listeners.controller"] == address


def test_dev_keeps_a_controller_port_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_LISTENERS_CONTROLLER", "127.0.0.5:7001")
    assert resolve_dev(DevOptions(grpc_port=1))["listeners.controller"] == "127.0.0.5:7001"
    moved = resolve_dev(DevOptions(grpc_port=1, host="127.0.0.9"))
    assert moved["listeners.controller"] == "127.0.0.9:7001"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (DevOptions(host="0.0.0.0"), "0.0.0.0: every interface"),
        (DevOptions(data_dir="/a", assignments=["data.dir=/b"]), "data.dir is given twice"),
        (DevOptions(grpc_port=1, assignments=["listeners.grpc=h:2"]), "listeners.grpc is given"),
        (DevOptions(assignments=["node.idd=3"]), "did you mean node.id"),
    ],
)
def test_invalid_flags_of_dev_are_refused(options: DevOptions, sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        resolve_dev(options)


@pytest.mark.parametrize("options", [DevOptions(), DevOptions(grpc_port=0)])
def test_dev_reports_the_source_of_an_invalid_listener(
    monkeypatch: pytest.MonkeyPatch, options: DevOptions
) -> None:
    monkeypatch.setenv("QUORUMLOG_LISTENERS_GRPC", "foo")
    with pytest.raises(InvalidConfig, match=r"QUORUMLOG_LISTENERS_GRPC: listeners\.grpc: "):
        resolve_dev(options)


def test_dev_may_listen_on_all_interfaces_with_an_advertised_address() -> None:
    permit = "allow.insecure.listeners=true"
    found = resolve_dev(DevOptions(host="0.0.0.0", assignments=["advertised.grpc=me:9094", permit]))
    assert node_config(found).advertised_grpc == "me:9094"


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (DevOptions(), "127.0.0.1:9095"),
        (DevOptions(http_port=7), "127.0.0.1:7"),
        (DevOptions(grpc_port=0), "127.0.0.1:0"),
        (DevOptions(grpc_port=9000, http_port=9095), "127.0.0.1:9095"),
        (DevOptions(host="127.0.0.9"), "127.0.0.9:9095"),
        (DevOptions(assignments=["listeners.http=[::1]:1"]), "[::1]:1"),
        (DevOptions(assignments=["listeners.http="]), ""),
    ],
)
def test_dev_opens_a_port_for_metrics(options: DevOptions, address: str) -> None:
    assert node_config(resolve_dev(options)).http_listener == address


@pytest.mark.parametrize(
    ("options", "addresses"),
    [
        (DevOptions(), ("127.0.0.1:9092",)),
        (DevOptions(kafka_port=7), ("127.0.0.1:7",)),
        (DevOptions(grpc_port=0), ("127.0.0.1:0",)),
        (DevOptions(grpc_port=9000, kafka_port=9092), ("127.0.0.1:9092",)),
        (DevOptions(host="127.0.0.9"), ("127.0.0.9:9092",)),
        (
            DevOptions(assignments=["listeners.kafka=A://[::1]:1, B://localhost:2"]),
            ("A://[::1]:1", "B://localhost:2"),
        ),
        (DevOptions(assignments=["listeners.kafka="]), ()),
    ],
)
def test_dev_opens_a_port_for_clients_of_the_kafka_protocol(
    options: DevOptions, addresses: tuple[str, ...]
) -> None:
    assert node_config(resolve_dev(options)).kafka_listeners == addresses


def test_metrics_port_is_set_once() -> None:
    with pytest.raises(InvalidConfig, match=r"listeners\.http is given twice"):
        resolve_dev(DevOptions(http_port=1, assignments=["listeners.http=h:2"]))


def test_server_opens_no_port_for_metrics_or_kafka_by_default(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data.dir = "/f"\n')
    assert load_config(str(file)).http_listener == ""
    assert load_config(str(file)).kafka_listeners == ()
    with pytest.raises(InvalidConfig, match=r"listeners\.http: .*9095"):
        load_config(str(file), ["listeners.http=9095"])
    with pytest.raises(InvalidConfig, match=r"log\.format: 'xml'; give text or json"):
        load_config(str(file), ["log.format=xml"])
