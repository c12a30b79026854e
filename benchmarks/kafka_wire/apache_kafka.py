"""Apache Kafka from its artifacts: one broker or three, KRaft, both roles in each process.

Settings are the defaults except for addresses, directories, the retention of files of deleted
topics, and, with one broker, the replication of internal topics. The virtual machine gets the flags
of the project's start script.
"""

import asyncio
import os
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.kafka_wire.artifacts import GET, KAFKA_VERSION, kafka_jars
from benchmarks.kafka_wire.systems import Members, Running
from benchmarks.kafka_wire.wire import answers
from benchmarks.raft.processes import Refused, free_ports

NAME = f"Apache Kafka {KAFKA_VERSION}"
MISSING = f"Apache Kafka is not here: it needs java (17 or newer) and mvn; {GET}"
START_S = 300.0  # for three concurrent starts on a busy machine
JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
LOGGING = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def is_here() -> bool:
    """Return True if it can be started."""
    return shutil.which("java") is not None and kafka_jars().exists()


def _id() -> str:
    return urlsafe_b64encode(b"\x40" + os.urandom(15)).decode().rstrip("=")


class Place:
    """The files and listeners of one broker."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.folder = folder / f"k{number}"
        self.folder.mkdir(parents=True)
        self.port, self.controller_port = free_ports(2)
        self.directory_id = _id()

    @property
    def controller(self) -> str:
        """Return the address of the controller listener for the other nodes."""
        return f"127.0.0.1:{self.controller_port}"

    def java(self, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """Return a command with its class path."""
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return ["java", *flags, "-cp", f"{kafka_jars()}/*", logging, *arguments]

    def configure(self, places: list["Place"], settings: Mapping[str, Any]) -> Path:
        """Write its files; return the one with the settings."""
        rows = {
            "node.id": str(self.number),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{self.controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(each.controller for each in places),
            "log.dirs": str(self.folder / "data"),
            "log.segment.delete.delay.ms": "1000",
        }
        if len(places) == 1:
            rows |= {
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
            }
        rows |= {name: str(value) for name, value in settings.items()}
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        (self.folder / "log4j2.properties").write_text(LOGGING)
        return path

    def tls_settings(self, certificates: Path, port: int, protocol: str) -> dict[str, str]:
        """Return the settings of a second listener with TLS: SSL or SASL_SSL."""
        pair = self.folder / "keystore.pem"
        parts = [(certificates / name).read_text() for name in ("server.key", "server.pem")]
        pair.write_text("".join(parts))
        plain = f"PLAINTEXT://127.0.0.1:{self.port}"
        encrypted = f"{protocol}://127.0.0.1:{port}"
        return {
            "listeners": f"{plain},{encrypted},CONTROLLER://{self.controller}",
            "advertised.listeners": f"{plain},{encrypted}",
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,{protocol}:{protocol},CONTROLLER:PLAINTEXT"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pair),
            "ssl.enabled.protocols": "TLSv1.3",
        }

    def format(self, cluster_id: str, places: list["Place"], settings: Mapping[str, Any]) -> None:
        """Format its directory."""
        path = self.configure(places, settings)
        if len(places) == 1:
            voters = ["--standalone"]
        else:
            named = (f"{p.number}@{p.controller}:{p.directory_id}" for p in places)
            voters = ["--initial-controllers", ",".join(named)]
        command = self.java("kafka.tools.StorageTool", "format", *voters)
        command += ["--cluster-id", cluster_id, "--config", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(f"Kafka's directory cannot be formatted: {done.stdout}{done.stderr}")

    @property
    def command(self) -> list[str]:
        """Return the command that runs it."""
        path = self.folder / "server.properties"
        return self.java("kafka.Kafka", str(path), flags=JVM)


@asynccontextmanager
async def kafka(
    folder: Path,
    brokers: int,
    settings: Mapping[str, Any] | None = None,
    certificates: Path | None = None,
    protocol: str = "SSL",
) -> AsyncIterator[Running]:
    """Run brokers in a block; `settings` are added to the defaults. With a folder of certificates
    the only broker also has a listener with TLS, SSL or SASL_SSL. Raise Refused."""
    places = [Place(folder, number) for number in range(1, brokers + 1)]
    cluster_id, tls_port = _id(), 0
    settings = dict(settings or {})
    if certificates is not None:
        (tls_port,) = free_ports(1)
        settings |= places[0].tls_settings(certificates, tls_port, protocol)
    for place in places:
        await asyncio.to_thread(place.format, cluster_id, places, settings)
    with Members() as members:
        for place in places:
            members.add(place.command, place.folder)
        try:
            for place in places:
                await asyncio.to_thread(answers, place.port, within_s=START_S)
        except Refused as refused:
            raise Refused(f"{refused}: {members.complaints()}") from None
        yield Running(members=members, port=places[0].port, tls_port=tls_port)
