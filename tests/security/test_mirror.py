"""Mirrors of secure clusters: from a real Kafka, and from one secure broker to another."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kit.certificates import Certificates
from tests.kit.command import COMMAND, invoke

from quorumlog.testing import Broker

from ..interop.kafka_process import Kafka
from ..interop.kafka_tools import tool_of
from ..interop.kafka_topics import Written, producing, rows, send

TOPIC = "orders"
USER, PASSWORD = "mirror", "secret"
WITHIN_S = 120
PROFILE = """\
[client]
security_protocol = "SASL_SSL"
tls_ca_file = "{ca}"
sasl_mechanism = "{mechanism}"
sasl_user = "{user}"
sasl_password = "{password}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureMirror:
    """The command `quorumlog mirror` with a configuration file for each cluster."""

    folder: Path
    target: Broker
    source_config: Path
    source_password: str

    def run(self, *words: str, source_password: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command; passwords are in its environment."""
        config = profile(
            self.folder / "target.toml",
            ca=self.target.ca_file,
            user="admin",
            password="env:TARGET_PASSWORD",
        )
        return subprocess.run(
            [*COMMAND, "mirror", *words, "--from-config", str(self.source_config)],
            env={
                **os.environ,
                "QUORUMLOG_CONFIG": str(config),
                "QUORUMLOG_BOOTSTRAP": self.target.grpc,
                "SOURCE_PASSWORD": source_password or self.source_password,
                "TARGET_PASSWORD": self.target.password,
            },
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def copy(self, source: str) -> str:
        """Mirror all topics once; return the output."""
        words = ("--from", source, "--to", self.target.grpc, "--topics", ".+", "--once")
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout


def profile(
    path: Path, *, ca: str, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> Path:
    """Write a client's configuration file."""
    path.write_text(PROFILE.format(ca=ca, user=user, password=password, mechanism=mechanism))
    return path


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates.create(tmp_path / "ca")


@pytest.fixture
def kafka(certificates: Certificates, tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka whose user has the rights that docs/mirroring.md lists, and no others."""
    made = Kafka(tmp_path / "kafka", certificates=certificates, users={USER: PASSWORD})
    with made as kafka:
        tool = tool_of(kafka.address)
        tool("topics", "--create", "--topic", TOPIC, "--config", "retention.ms=-1")
        tool("topics", "--create", "--topic", "hidden")
        principal = ("--add", "--allow-principal", f"User:{USER}")
        operations = ("--operation", "Read", "--operation", "DescribeConfigs")
        tool("acls", *principal, *operations, "--topic", TOPIC)
        tool("acls", *principal, "--operation", "Read", "--group", "quorumlog-mirror")
        yield kafka


def write(kafka: Kafka, count: int) -> None:
    """Send records on Kafka's plain listener."""

    async def main() -> None:
        async with producing(kafka.address) as producer:
            await send(producer, Written(), TOPIC, rows(count))

    asyncio.run(main())


@pytest.mark.long
def test_topic_is_mirrored_from_a_secure_kafka(
    kafka: Kafka, certificates: Certificates, tmp_path: Path
) -> None:
    source_config = profile(
        tmp_path / "source.toml",
        ca=certificates.ca,
        user=USER,
        password="env:SOURCE_PASSWORD",
        mechanism="SCRAM-SHA-512",
    )
    source = f"kafka://{kafka.secure_address}"
    with Broker(secure=True) as broker:
        mirror = SecureMirror(
            folder=tmp_path, target=broker, source_config=source_config, source_password=PASSWORD
        )
        for count in (500, 20):
            write(kafka, count)
            said = mirror.copy(source)
            assert f"of 1 topics are caught up, lag 0; copied {count} records" in said
        with broker.connect() as log:
            records = list(log.consumer(TOPIC, until_end=True))
            expected = [*rows(500), *rows(20)]
            assert [record.offset for record in records] == list(range(520))
            assert [record.value for record in records] == [record.value for record in expected]
            assert log.admin.describe_topic(TOPIC).configs["retention.ms"] == "-1"
        words = ("--from", source, "--to", broker.grpc, "--topics", ".+", "--once")
        refused = mirror.run(*words, source_password="wrong")
        assert refused.returncode != 0
        assert "authentication" in refused.stderr.lower()


@pytest.mark.long
def test_topic_is_mirrored_from_one_secure_broker_to_another(tmp_path: Path) -> None:
    with Broker(secure=True) as source, Broker(secure=True) as target:
        source.create_topic(TOPIC)
        with source.connect() as log, log.producer() as producer:
            producer.send(TOPIC, value=b"one").result()
        source_config = profile(
            tmp_path / "source.toml",
            ca=source.ca_file,
            user="admin",
            password="env:SOURCE_PASSWORD",
        )
        mirror = SecureMirror(
            folder=tmp_path,
            target=target,
            source_config=source_config,
            source_password=source.password,
        )
        assert "copied 1 records" in mirror.copy(source.grpc)
        status = mirror.run("status", "--from", source.grpc, "-o", "json")
        assert status.returncode == 0, status.stderr
        (row,) = json.loads(status.stdout)
        assert (row["copied_to"], row["source_end"], row["lag"]) == (1, 1, 0)


def test_password_in_the_configuration_file_of_the_source_is_refused(tmp_path: Path) -> None:
    words = ("mirror", "--from", "kafka://a:1", "--to", "b:1", "--topics", ".+")
    missing = invoke(*words, "--from-config", str(tmp_path / "missing.toml"))
    assert missing.exit_code != 0
    assert "named by --from-config" in missing.output
    config = profile(tmp_path / "source.toml", ca="", user=USER, password=PASSWORD)
    refused = invoke(*words, "--from-config", str(config))
    assert refused.exit_code != 0
    assert "sasl_password: give file:PATH or env:NAME" in refused.output
    assert PASSWORD not in refused.output
