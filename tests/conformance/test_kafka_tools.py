"""The command-line tools of Kafka; each runs in a separate JVM."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.kit.client_security import write_properties
from tests.kit.node_process import lose_topic

from quorumlog.testing import Broker

from ..interop.kafka_jars import VERSION
from ..interop.kafka_tools import Tool, tool_of
from .clients.confluent import Confluent
from .clients.kafka_python import KafkaPython
from .cluster import Cluster, ThreeNodes
from .driving import read
from .records import numbered

pytestmark = [pytest.mark.long, pytest.mark.suite("kafka-tools", VERSION), pytest.mark.timeout(240)]

MakeTopic = Callable[..., str]


@pytest.fixture
def tool(cluster: Cluster, tmp_path: Path) -> Tool:
    """Run `kafka-NAME --bootstrap-server ...` and return its output."""
    if cluster.security is None:
        return tool_of(cluster.bootstrap)
    config = write_properties(tmp_path / "client.properties", cluster.security.java())
    return tool_of(cluster.bootstrap, config=config)


def rows(printed: str) -> list[dict[str, str]]:
    """Return the partitions that kafka-topics describes: each line is "Name: value" by tabs."""
    found = []
    for line in printed.splitlines():
        pairs = [part.partition(": ") for part in line.strip().split("\t")]
        row = {name.strip(): value.strip() for name, _, value in pairs}
        if "Partition" in row:
            found.append(row)
    return found


def test_topics_are_created_described_extended_and_deleted(tool: Tool, cluster: Cluster) -> None:
    replication = str(cluster.replication)
    made = ("--create", "--topic", "tools.topic", "--partitions", "2")
    tool("topics", *made, "--replication-factor", replication, "--config", "retention.ms=60000")
    assert "tools.topic" in tool("topics", "--list").splitlines()
    described = tool("topics", "--describe", "--topic", "tools.topic")
    assert "retention.ms=60000" in described
    assert [row["Partition"] for row in rows(described)] == ["0", "1"]
    for row in rows(described):
        replicas = row["Replicas"].split(",")
        assert len(replicas) == cluster.replication
        assert row["Leader"] in replicas
        assert sorted(row["Isr"].split(",")) == sorted(replicas)
    tool("topics", "--alter", "--topic", "tools.topic", "--partitions", "5")
    assert len(rows(tool("topics", "--describe", "--topic", "tools.topic"))) == 5
    assert "TopicExistsException" in tool("topics", *made, code=1)
    assert rows(tool("topics", "--describe", "--under-replicated-partitions")) == []
    assert rows(tool("topics", "--describe", "--unavailable-partitions")) == []
    tool("topics", "--delete", "--topic", "tools.topic")
    assert "tools.topic" not in tool("topics", "--list").splitlines()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_reset_and_deleted(
    tool: Tool, topic: MakeTopic, protocol: str
) -> None:
    name = topic()
    tool("console-producer", "--topic", name, stdin="a\nb\n")
    speaks = ("--command-property", f"group.protocol={protocol}")
    ends = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    read = tool("console-consumer", "--topic", name, "--group", name, *speaks, *ends)
    assert read.splitlines()[:2] == ["a", "b"]
    assert name in tool("consumer-groups", "--list").splitlines()

    def described() -> list[str]:
        (line,) = re.findall(
            rf"^{re.escape(name)} +{re.escape(name)} +(.*)$",
            tool("consumer-groups", "--describe", "--group", name),
            re.MULTILINE,
        )
        fields: list[str] = line.split()
        return fields

    assert [field for field in described() if field.isdigit()][-3:] == ["2", "2", "0"]
    which = ("--group", name, "--topic", name)
    tool("consumer-groups", "--reset-offsets", *which, "--to-earliest", "--execute")
    assert [field for field in described() if field.isdigit()][-3:] == ["0", "2", "2"]
    tool("consumer-groups", "--delete-offsets", *which)
    tool("consumer-groups", "--delete", "--group", name)
    assert name not in tool("consumer-groups", "--list").splitlines()


def test_configs_of_topics_are_altered_and_described(tool: Tool, topic: MakeTopic) -> None:
    name = topic()
    which = ("--entity-type", "topics", "--entity-name", name)
    tool("configs", "--alter", *which, "--add-config", "retention.ms=70000,segment.ms=80000")
    described = tool("configs", "--describe", *which)
    assert "retention.ms=70000" in described
    assert "segment.ms=80000" in described
    tool("configs", "--alter", *which, "--delete-config", "segment.ms")
    described = tool("configs", "--describe", *which)
    assert "retention.ms=70000" in described
    assert "segment.ms=" not in described
    everything = tool("configs", "--describe", "--all", *which)
    assert "max.message.bytes=1048588" in everything
    assert "segment.ms=604800000" in everything
    refused = tool("configs", "--alter", *which, "--add-config", "retention.ms=long", code=1)
    assert "retention.ms" in refused


def test_configs_of_brokers_and_of_all_brokers_are_described(tool: Tool, cluster: Cluster) -> None:
    broker = str(min(cluster.addresses))
    which = ("--entity-type", "brokers", "--entity-name", broker)
    assert "node.id=" in tool("configs", "--describe", "--all", *which)
    tool("configs", "--describe", "--entity-type", "brokers", "--entity-default")


def test_quotas_are_altered_and_described(tool: Tool) -> None:
    which = ("--entity-type", "clients", "--entity-name", "greedy")
    tool("configs", "--alter", *which, "--add-config", "producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576" in tool("configs", "--describe", *which)
    tool("configs", "--alter", *which, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in tool("configs", "--describe", *which)


def test_offsets_are_listed_and_records_deleted(
    tool: Tool, cluster: Cluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    with KafkaPython(cluster.bootstrap, cluster.security).writer() as writer:
        writer.send(name, [*numbered(30, partition=0), *numbered(10, partition=1)])
    assert f"{name}:0:30" in tool("get-offsets", "--topic", name, "--time", "-1").splitlines()
    plan = tmp_path / "deletion.json"
    plan.write_text(
        json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 7}], "version": 1})
    )
    assert "low_watermark: 7" in tool("delete-records", "--offset-json-file", str(plan))
    assert f"{name}:0:7" in tool("get-offsets", "--topic", name, "--time", "-2").splitlines()
    latest = tool("get-offsets", "--topic", name, "--time", "max-timestamp")
    assert re.search(rf"^{re.escape(name)}:1:\d+$", latest, re.MULTILINE)


def test_log_directories_are_described(tool: Tool, cluster: Cluster, topic: MakeTopic) -> None:
    name = topic(partitions=2)
    with KafkaPython(cluster.bootstrap, cluster.security).writer() as writer:
        writer.send(name, numbered(100, partition=1))
    printed = tool("log-dirs", "--describe", "--topic-list", name)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    brokers = json.loads(line)["brokers"]
    assert [each["broker"] for each in brokers] == sorted(cluster.addresses)
    for each in brokers:
        (found,) = each["logDirs"]
        assert found["error"] is None
        sizes = {one["partition"]: one["size"] for one in found["partitions"]}
        assert sorted(sizes) == [f"{name}-0", f"{name}-1"]
        assert sizes[f"{name}-1"] > 0


def test_preferred_leaders_are_elected(tool: Tool, topic: MakeTopic) -> None:
    name = topic()
    which = ("--election-type", "preferred", "--topic", name, "--partition", "0")
    assert "Valid replica already elected" in tool("leader-election", *which)


def test_partitions_are_reassigned(tool: Tool, cluster: Cluster, tmp_path: Path) -> None:
    if not isinstance(cluster, ThreeNodes):
        pytest.skip("excluded: one node has no target for a reassignment")
    tool("topics", "--create", "--topic", "tools.moved", "--replica-assignment", "1:2,2:3")
    plan = tmp_path / "plan.json"
    wanted = {0: [3, 1], 1: [1, 2]}
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {"topic": "tools.moved", "partition": at, "replicas": replicas}
                    for at, replicas in wanted.items()
                ],
            }
        )
    )
    file = ("--reassignment-json-file", str(plan))
    printed = tool("reassign-partitions", *file, "--execute")
    assert "Successfully started partition reassignments" in printed
    for _ in range(20):
        printed = tool("reassign-partitions", *file, "--verify")
        if "still in progress" not in printed:
            break
    assert printed.count("is completed") >= 2
    found = rows(tool("topics", "--describe", "--topic", "tools.moved"))
    assert [[int(one) for one in row["Replicas"].split(",")] for row in found] == [[3, 1], [1, 2]]
    assert "No partition reassignments found" in tool("reassign-partitions", "--list")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "tools.moved"}]}))
    generate = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3")
    assert "Proposed partition reassignment" in tool("reassign-partitions", *generate)
    tool("topics", "--delete", "--topic", "tools.moved")


def test_the_quorum_is_described(tool: Tool, cluster: Cluster) -> None:
    status = tool("metadata-quorum", "describe", "--status")
    fields = {name: value for name, value in re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE)}
    assert int(fields["LeaderId"]) in cluster.addresses
    assert int(fields["LeaderEpoch"]) > 0
    assert int(fields["HighWatermark"]) > 0
    replication = tool("metadata-quorum", "describe", "--replication")
    states = re.findall(r"(Leader|Follower|Observer)\s*$", replication, re.MULTILINE)
    assert states.count("Leader") == 1
    assert len(states) == len(cluster.addresses)


def test_features_are_described(tool: Tool) -> None:
    printed = tool("features", "describe")
    assert re.search(r"Feature: metadata.version\s", printed), printed


def test_api_versions_of_every_broker_are_returned(tool: Tool, cluster: Cluster) -> None:
    printed = tool("broker-api-versions")
    for number, address in cluster.addresses.items():
        assert f"{address} (id: {number} " in printed
    assert "Produce(0): 0 to 13" in printed
    assert "ApiVersions(18): 0 to 4" in printed


def test_the_cluster_returns_its_id_and_its_endpoints(tool: Tool, cluster: Cluster) -> None:
    with KafkaPython(cluster.bootstrap, cluster.security).admin() as admin:
        known = admin.brokers()
    assert f"Cluster ID: {known.cluster_id}" in tool("cluster", "cluster-id")
    listed = tool("cluster", "list-endpoints")
    for number, address in cluster.addresses.items():
        host, port = address.split(":")
        assert re.search(rf"^{number}\s+{re.escape(host)}\s+{port}\b", listed, re.MULTILINE)


def test_producers_of_a_partition_are_described(
    tool: Tool, cluster: Cluster, topic: MakeTopic
) -> None:
    name = topic()
    with KafkaPython(cluster.bootstrap, cluster.security).writer(idempotent=True) as writer:
        writer.send(name, numbered(10))
        printed = tool("transactions", "describe-producers", "--topic", name, "--partition", "0")
    lines = [line.split() for line in printed.splitlines()]
    (header,) = [line for line in lines if "ProducerId" in line]
    (row,) = lines[lines.index(header) + 1 :]
    found = dict(zip(header, row, strict=True))
    assert int(found["ProducerId"]) >= 0
    assert found["LastSequence"] == "9"


def table(printed: str) -> list[dict[str, str]]:
    """Return the rows of a table by the names of its columns."""
    header, *lines = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    return [
        {name.strip(): field.strip() for name, field in zip(header, line, strict=False)}
        for line in lines
    ]


def test_transactions_are_listed_described_and_aborted_in_a_partition(
    tool: Tool, cluster: Cluster, topic: MakeTopic
) -> None:
    name = topic()
    with Confluent(cluster.bootstrap, cluster.security).transactional(name) as writer:
        writer.begin()
        writer.send(name, numbered(10))
        (listed,) = [row for row in table(tool("transactions", "list")) if name in row.values()]
        assert listed["TransactionState"] == "Ongoing"
        (row,) = table(tool("transactions", "describe", "--transactional-id", name))
        assert row["TransactionState"] == "Ongoing"
        assert row["ProducerId"] == listed["ProducerId"]
        assert row["CoordinatorId"] == listed["Coordinator"]
        assert row["TransactionTimeoutMs"] == "60000"
        assert row["TopicPartitions"] == f"{name}-0"
        hanging = ("find-hanging", "--topic", name, "--max-transaction-timeout", "0")
        assert table(tool("transactions", *hanging)) == []  # its coordinator has it
        where = ("--topic", name, "--partition", "0")
        (open_one,) = table(tool("transactions", "describe-producers", *where))
        assert open_one["CurrentTransactionStartOffset"] == "0"
        tool("transactions", "abort", *where, "--start-offset", "0")
        (aborted,) = table(tool("transactions", "describe-producers", *where))
        assert aborted["CurrentTransactionStartOffset"] == "None"
    missing = tool("transactions", "describe", "--transactional-id", "no such id", code=1)
    assert "could not be found" in missing


def test_a_hanging_transaction_is_found_and_aborted(tmp_path: Path) -> None:
    """The coordinator lost its state while a transaction was open in a partition."""
    with Broker(data_dir=tmp_path / "data") as broker:
        name = broker.create_topic()
        with Confluent(broker.kafka).transactional(name) as writer:
            writer.begin()
            writer.send(name, numbered(10))
            broker.stop()
            lose_topic(broker.data_dir, "__transaction_state")
            broker.start()
        tool = tool_of(broker.kafka)
        hanging = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
        (found,) = table(tool("transactions", *hanging))
        assert (found["Topic"], found["Partition"], found["StartOffset"]) == (name, "0", "0")
        where = ("--topic", name, "--partition", "0", "--start-offset", "0")
        tool("transactions", "abort", *where)
        assert table(tool("transactions", *hanging)) == []
        with KafkaPython(broker.kafka).writer() as plain:
            plain.send(name, numbered(3))
        with Confluent(broker.kafka).reader(name, {0: "beginning"}, is_committed=True) as reader:
            assert [one.offset for one in read(reader, 3)] == [11, 12, 13]  # after the marker


@pytest.mark.parametrize("is_group", [False, True])
def test_messages_are_copied_in_transactions(
    tool: Tool, cluster: Cluster, topic: MakeTopic, is_group: bool
) -> None:
    """Kafka's own read-process-write program aborts some of its transactions at random."""
    if cluster.security is not None:
        pytest.skip("excluded: the program accepts no client settings")
    source, target = topic(), topic()
    printed = tool(
        "verifiable-producer", "--topic", source, "--max-messages", "500", "--acks", "-1"
    )
    said = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    (done,) = [each for each in said if each["name"] == "tool_data"]
    assert (done["sent"], done["acked"]) == (500, 500)
    printed = tool(
        "transactional-message-copier",
        *("--transactional-id", source, "--consumer-group", source, "--enable-random-aborts"),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transaction-size", "20", "--use-group-metadata"),
        *(["--group-mode"] if is_group else []),
    )
    said = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert said[-1]["remaining"] == 0, said
    read_back = tool(
        "console-consumer",
        *("--topic", target, "--from-beginning", "--max-messages", "501", "--timeout-ms", "5000"),
        *("--command-property", "isolation.level=read_committed"),
    )
    copied = [line for line in read_back.splitlines() if line.isdigit()]
    assert copied == [str(number) for number in range(500)]


def test_the_console_writes_and_reads(tool: Tool, topic: MakeTopic) -> None:
    name = topic()
    pairs = ("--property", "parse.key=true", "--property", "key.separator=:")
    tool("console-producer", "--topic", name, *pairs, stdin="a:1\nb:2\nc:3\n")
    read: Sequence[str] = ("--partition", "0", "--offset", "earliest", "--max-messages", "3")
    printed = tool(
        "console-consumer",
        "--topic",
        name,
        *read,
        *("--property", "print.key=true", "--property", "print.offset=true"),
    )
    assert [line.split("\t") for line in printed.splitlines() if line.startswith("Offset")] == [
        ["Offset:0", "a", "1"],
        ["Offset:1", "b", "2"],
        ["Offset:2", "c", "3"],
    ]


@pytest.mark.parametrize("is_transactional", [False, True])
def test_the_performance_test_of_producers_runs(
    tool: Tool, topic: MakeTopic, is_transactional: bool
) -> None:
    name = topic(partitions=3)
    of_transactions = ("--transactional-id", name, "--transaction-duration-ms", "100")
    printed = tool(
        "producer-perf-test",
        *("--topic", name, "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1"),
        *(of_transactions if is_transactional else ()),
    )
    assert re.search(r"20000 records sent, .* 99.9th", printed), printed
    listed = tool("get-offsets", "--topic", name)
    count = sum(int(line.rpartition(":")[2]) for line in listed.splitlines() if ":" in line)
    assert count > 20000 if is_transactional else count == 20000  # including the markers
