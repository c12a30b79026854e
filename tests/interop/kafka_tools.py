"""Kafka's command line tools, each run in a JVM of its own."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from .kafka_jars import java_command

TOOL_S: Final = 60
CLASSES: Final = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}
WHERE: Final = {"transactional-message-copier": "--broker-list"}

Tool: TypeAlias = Callable[..., str]


def tool_of(bootstrap: str, *, config: Path | None = None, flags: Sequence[str] = ()) -> Tool:
    """Return a function that runs `kafka-NAME --bootstrap-server ...` and returns its output.

    `config` is the file of client settings, `flags` are those of the JVM.
    """

    def run(name: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        command = [*java_command(), "-Xmx256m", *flags, CLASSES[name]]
        where = [WHERE.get(name, "--bootstrap-server"), bootstrap]
        if config is not None:
            where += ["--command-config", str(config)]
        finished = subprocess.run(
            [*command, *arguments, *where] if name == "cluster" else [*command, *where, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            check=False,
        )
        said = finished.stdout + finished.stderr
        assert finished.returncode == code, f"kafka-{name} {arguments}: {said[-3000:]}"
        return said

    return run
