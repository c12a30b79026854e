"""The files of examples/deploy are valid for systemd, Kubernetes and the node."""

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from quorumlog.cli.main import LazyCommands
from quorumlog.server.config import (
    NodeConfig,
    node_config,
    node_environment,
    resolve_node,
    toml_source,
)

DEPLOY = Path(__file__).parents[2] / "examples/deploy"
SERVICE = DEPLOY / "quorumlog.service"
KUBERNETES = "1.31"
NODES = 3


def documents() -> dict[str, list[dict[str, Any]]]:
    """Return the Kubernetes objects by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        found.setdefault(each["kind"], []).append(each)
    return found


def pod() -> dict[str, Any]:
    (stateful_set,) = documents()["StatefulSet"]
    found: dict[str, Any] = stateful_set["spec"]["template"]["spec"]
    return found


def stop_s(config: NodeConfig) -> float:
    """Return the longest duration of a clean stop without the flush of the logs: six listeners with
    the grace period each."""
    return (config.controlled_shutdown_timeout_ms + 6 * config.shutdown_grace_ms) / 1000


# --- systemd -------------------------------------------------------------------------------------


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "quorumlog.service"
    program = f"{sys.executable} -m quorumlog.cli"
    unit.write_text(SERVICE.read_text().replace("/opt/quorumlog/bin/quorumlog", program))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_waits_for_a_clean_stop() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(SERVICE.read_text())
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) > 2 * stop_s(NodeConfig(data_dir="data"))
    assert int(service["LimitNOFILE"]) > 10_000
    assert service["User"] == "quorumlog"


# --- Kubernetes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", documents())
def test_kubernetes_accepts_the_objects(kind: str) -> None:
    for each in documents()[kind]:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


def environment(number: int) -> dict[str, str]:
    """Return the variables of a pod's container, expanded as by the kubelet."""
    fields = {
        "metadata.name": f"quorumlog-{number}",
        "metadata.namespace": "default",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(number),
    }
    found: dict[str, str] = {}
    for variable in pod()["containers"][0]["env"]:
        source: Mapping[str, Any] = variable.get("valueFrom", {})
        if "configMapKeyRef" in source:
            continue
        value = variable["value"] if not source else fields[source["fieldRef"]["fieldPath"]]
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


def config(number: int) -> NodeConfig:
    """Return the configuration of a pod as its node reads it."""
    (config_map,) = documents()["ConfigMap"]
    file = toml_source(config_map["data"]["node.toml"], path="node.toml")
    return node_config(resolve_node([node_environment(environment(number)), file]))


@pytest.mark.parametrize("number", range(NODES))
def test_the_configuration_of_a_pod_is_that_of_its_node(number: int) -> None:
    found = config(number)
    assert found.node_id == number
    assert found.own_entry is not None
    assert found.own_entry.address == found.advertised_controller
    assert found.advertised_controller == f"quorumlog-{number}.quorumlog:9093"
    assert found.advertised_grpc.startswith(f"quorumlog-{number}.quorumlog.default.svc")
    assert found.security.certificate_file == f"/etc/quorumlog/tls/quorumlog-{number}.pem"
    assert len(found.voters) == NODES
    assert found.security.internal_security == "required"
    for name in found.kafka_names:
        assert found.security.protocol_of(name).is_encrypted


def test_each_listener_is_a_port_of_the_pod_and_of_the_service() -> None:
    found = config(0)
    addresses = {
        "grpc": found.grpc_listener,
        "controller": found.controller_listener,
        "raft": found.raft_listener,
        "replica": found.replica_listener,
        "http": found.http_listener,
        "kafka": found.kafka_listeners[0],
    }
    listening = {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}
    container = pod()["containers"][0]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == listening
    headless = documents()["Service"][0]["spec"]
    assert {each["name"]: each["port"] for each in headless["ports"]} == listening
    (policy,) = documents()["NetworkPolicy"]
    opened = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(opened) == sorted(listening.values())


def test_every_object_selects_the_pods() -> None:
    found = documents()
    (stateful_set,) = found["StatefulSet"]
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    selectors = [each["spec"]["selector"] for each in found["Service"]]
    selectors.append(found["NetworkPolicy"][0]["spec"]["podSelector"]["matchLabels"])
    selectors.append(found["PodDisruptionBudget"][0]["spec"]["selector"]["matchLabels"])
    selectors.append(stateful_set["spec"]["selector"]["matchLabels"])
    assert all(each == labels for each in selectors)
    assert stateful_set["spec"]["serviceName"] == found["Service"][0]["metadata"]["name"]


def test_a_pod_has_the_time_for_a_clean_stop_and_no_privileges() -> None:
    found = pod()
    assert found["terminationGracePeriodSeconds"] > 2 * stop_s(config(0))
    for container in [*found["initContainers"], *found["containers"]]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert found["securityContext"]["runAsNonRoot"]
    volumes = {each["name"] for each in found["volumes"]} | {"data"}
    assert {each["name"] for each in found["containers"][0]["volumeMounts"]} == volumes


# --- the page ------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_configuration_of_the_page_is_that_of_a_secured_node() -> None:
    (text,) = blocks("toml")
    found = node_config(resolve_node([toml_source(text, path="node.toml")]))
    assert found.own_entry is not None
    assert not found.allow_insecure_listeners


def test_the_commands_of_the_page_exist() -> None:
    commands = re.findall(r"(?:^|/)quorumlog ([a-z]+) ([a-z-]+) ", "\n".join(blocks("sh")), re.M)
    commands += re.findall(r"`quorumlog ([a-z]+) ([a-z-]+)[ `]", PAGE)
    assert len(commands) > 5
    for first, second in commands:
        found: Any = LazyCommands()[first]
        assert second in found.commands, (first, second)
