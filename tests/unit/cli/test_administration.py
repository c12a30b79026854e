"""Commands for placement, cluster configs and features, with a real node."""

import json
from pathlib import Path

import pytest
from tests.kit.command import invoke, succeed


def test_topic_is_created_as_assigned_and_grows(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "--assignments", "1/1", address=address)
    said = succeed("topics", "alter", topic, "-p", "3", "--validate-only", address=address)
    assert said == f"Topic {topic} would have 3 partitions.\n"
    for _ in range(2):
        said = succeed("topics", "alter", topic, "--partitions", "3", address=address)
        assert said == f"Topic {topic} has 3 partitions.\n"
    grown = json.loads(
        succeed(
            "topics", "alter", topic, "-p", "4", "--assignments", "1", "-o", "json", address=address
        )
    )
    assert [each["replicas"] for each in grown["partitions"]] == [[1]] * 4
    refused = invoke("topics", "alter", topic, "-p", "2", "-o", "json", address=address)
    assert refused.exit_code == 1
    assert json.loads(refused.stderr)["error"] == "INVALID_PARTITIONS"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("topics", "create", "x", "-p", "2", "--assignments", "1"),
            2,
            "remove --partitions and --replication",
        ),
        (("topics", "create", "x", "--assignments", "1,1"), 1, "give each broker once"),
        (("topics", "create", "x", "--assignments", "1,7"), 1, "7"),
        (("topics", "alter", "none-such", "-p", "2"), 1, "the topic does not exist"),
        (("partitions", "status", "none-such"), 1, "the topic does not exist"),
        (("partitions", "reassign"), 2, "give exactly one of"),
        (("partitions", "reassign", "--cancel", "--drain", "1"), 2, "give exactly one of"),
        (("partitions", "reassign", "--drain", "1", "--brokers", "2"), 2, "not both"),
        (("partitions", "reassign", "--to", "1"), 2, "--to requires TOPIC"),
        (("partitions", "reassign", "-p", "0", "--drain", "1"), 2, "requires TOPIC"),
        (("partitions", "reassign", "--cancel", "--dry-run"), 2, "--cancel has no plan"),
        (("partitions", "reassign", "none-such", "--drain", "1"), 1, "the topic does not exist"),
        (("partitions", "reassign", "--brokers", "4"), 1, "broker 4 is not registered"),
        (("partitions", "reassign", "--file", "/none/such"), 1, "cannot be read"),
        (("partitions", "wait"), 2, "give --in-sync"),
        (("partitions", "wait", "none-such", "--in-sync"), 1, "the topic does not exist"),
        (("partitions", "elect-leader", "-p", "0"), 2, "requires TOPIC"),
        (("partitions", "elect-leader", "t", "--unclean"), 2, "give TOPIC and each"),
        (("features", "update", "metadata.version"), 2, "give NAME=VALUE"),
        (("features", "update", "metadata.version=new"), 2, "give a whole number"),
        (("features", "update", "metadata.version=99"), 1, "not 99"),
        (("brokers", "unregister", "1"), 1, "is alive"),
        (("brokers", "unregister", "9"), 1, "broker 9 is not registered"),
    ],
)
def test_invalid_arguments_are_refused_with_the_remedy(
    address: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    refused = invoke(*arguments, address=address)
    assert refused.exit_code == code, refused.output
    assert said in " ".join(refused.stderr.replace("│", " ").split())


def test_states_of_partitions_are_counted_and_listed(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-p", "2", address=address)
    said = succeed("partitions", "status", topic, address=address)
    assert said == "2 partitions: all healthy.\n"
    output = json.loads(
        succeed("partitions", "status", topic, "--all", "-o", "json", address=address)
    )
    assert output["counts"]["partitions"] == 2
    assert output["partitions"][1] == {
        "topic": topic,
        "partition": 1,
        "states": [],
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "min_isr": 1,
        "elr": [],
        "adding": [],
        "removing": [],
    }
    assert topic in succeed("partitions", "status", topic, "--all", address=address)


def test_wait_returns_once_all_partitions_are_in_sync(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-p", "2", address=address)
    wait = ("partitions", "wait", topic, "--in-sync")
    assert succeed(*wait, address=address) == "2 partitions are in sync.\n"
    found = json.loads(succeed("partitions", "wait", "--in-sync", "-o", "json", address=address))
    assert found == {"in_sync": True, "partitions": []}


def test_reassignments_are_planned_started_and_refused_by_partition(
    address: str, topic: str, tmp_path: Path
) -> None:
    succeed("topics", "create", topic, "-p", "2", address=address)
    reassign = ("partitions", "reassign")
    assert succeed(*reassign, topic, "--cancel", address=address) == "Nothing to do.\n"
    planned = json.loads(
        succeed(*reassign, topic, "-p", "1", "--to", "1", "--dry-run", address=address)
    )
    assert planned["partitions"] == [{"topic": topic, "partition": 1, "replicas": [1]}]
    file = tmp_path / "plan"
    file.write_text(json.dumps(planned))
    done = succeed(*reassign, "--file", str(file), "--wait", address=address)
    assert done == "1 partition is moved.\n"
    planned["partitions"].append({"topic": topic, "partition": 0, "replicas": [5]})
    refused = invoke(
        *reassign, "--file", "-", "-o", "json", address=address, stdin=json.dumps(planned)
    )
    assert refused.exit_code == 1
    output = json.loads(refused.stdout)["partitions"]
    assert [(each["partition"], each["error"]) for each in output] == [
        (1, None),
        (0, "INVALID_REPLICA_ASSIGNMENT"),
    ]


def test_election_without_a_change_succeeds(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    for arguments in ((topic, "-p", "0"), (topic, "-p", "0", "--unclean"), ()):
        said = succeed("partitions", "elect-leader", *arguments, address=address)
        assert said == "Nothing to do.\n"


def test_configs_of_the_cluster_are_set_shown_and_reset(address: str) -> None:
    name = "replication.throttled.rate"
    alter, describe = ("configs", "alter", "--cluster"), ("configs", "describe", "--cluster")
    said = succeed(*alter, "--set", f"{name}=50MiB", address=address)
    assert said == f"Non-default configs of the cluster are: {name}=52428800.\n"
    (output,) = json.loads(succeed(*describe, "--changed", "-o", "json", address=address))
    assert (output["name"], output["value"], output["source"]) == (name, "52428800", "cluster")
    said = succeed(*alter, "--delete", name, address=address)
    assert said == "Non-default configs of the cluster are: none.\n"
    assert name in succeed(*describe, address=address)
    for wrong in (alter[:2], (*alter, "topic"), (*describe, "topic")):
        refused = invoke(*wrong, "--set", "a=b", address=address)
        assert refused.exit_code == 2


def test_features_are_listed_and_updated(address: str) -> None:
    (row, *_) = json.loads(succeed("features", "list", "-o", "json", address=address))
    assert row["level_min"] <= row["level"] <= row["level_max"]
    level = f"{row['name']}={row['level']}"
    assert row["name"] in succeed("features", "update", level, "--validate-only", address=address)
    assert row["name"] in succeed("features", "list", address=address)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("not-isr",), "All replicas are in sync.\n"),
        (("under-min-isr",), "No partition is below min.insync.replicas.\n"),
        (("fenced",), "No broker is fenced.\n"),
        (("fenced", "1"), "Broker 1 is not fenced.\n"),
    ],
)
def test_healthy_objects_are_reported_as_healthy(
    address: str, arguments: tuple[str, ...], said: str
) -> None:
    assert succeed("explain", *arguments, address=address) == said


def test_explanations_are_one_object_each_for_programs(address: str) -> None:
    (output,) = json.loads(succeed("explain", "fenced", "9", "-o", "json", address=address))
    assert list(output) == ["topic", "partition", "broker", "why", "remedy"]
    assert output["broker"] == 9
    assert "registered brokers: 1" in output["why"]
    assert invoke("explain", "not-isr", "none-such", address=address).exit_code == 1
    assert invoke("explain", "not-isr", "-p", "0", address=address).exit_code == 2


def test_brokers_list_the_addresses_for_kafka_clients(address: str) -> None:
    (listed,) = json.loads(succeed("brokers", "list", "-o", "json", address=address))
    output = listed["kafka"]["PLAINTEXT"]
    assert output.startswith("127.0.0.1:")
    assert output in succeed("brokers", "list", address=address)
    described = succeed("brokers", "describe", "1", address=address)
    assert f"Kafka listeners: {output}\n" in described
