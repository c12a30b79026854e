"""One Apache Kafka: broker and controller in one process, on loopback, with its own data folder.

All its output goes to one log file, which tests read: errors of an index and recoveries of a
segment appear there.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.kit.certificates import Certificates

from .kafka_jars import java_command

CLUSTER_ID = "cXVvcnVtbG9nIGludGVybw"
START_S = 240.0
STOP_S = 120.0
TOOL_S = 240.0
PAUSE_S = 0.05  # between two polls of another process

PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://{broker},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{broker},CONTROLLER://{controller}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={controller}
log.dirs={data}
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=50
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.threads=1
log.index.size.max.bytes=102400
log.retention.ms=-1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
"""
SECURE_PROPERTIES = """\
listeners=PLAINTEXT://{broker},SASL_SSL://{secure},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{broker},SASL_SSL://{secure},CONTROLLER://{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
sasl.enabled.mechanisms=SCRAM-SHA-512
ssl.keystore.location={pair}
ssl.keystore.type=PEM
super.users=User:ANONYMOUS
"""
SETTINGS: Final[Mapping[str, str]] = {"auto.create.topics.enable": "false"}
LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.log.name = org.apache.kafka.storage
logger.log.level = info
logger.unified.name = kafka.log
logger.unified.level = info
"""


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Kafka:
    """A Kafka in `folder`, formatted at once; started on enter, killed on exit."""

    def __init__(
        self,
        folder: Path,
        *,
        node_id: int = 1,
        settings: Mapping[str, str] = SETTINGS,
        certificates: Certificates | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` follow the common ones. With `certificates` it also has a SASL_SSL listener
        for `users` with passwords; these users need ACLs."""
        folder.mkdir(parents=True)
        self.address, self.secure_address, controller = (_free_address() for _ in range(3))
        self.data = folder / "data"
        self._log = folder / "kafka.log"
        self._properties = folder / "server.properties"
        self._logging = folder / "log4j2.properties"
        self._logging.write_text(LOGGING)
        given = "".join(f"{name}={value}\n" for name, value in settings.items())
        places = {"broker": self.address, "controller": controller}
        if certificates is not None:
            given += SECURE_PROPERTIES.format(
                **places, secure=self.secure_address, pair=certificates.pair("server")
            )
        self._properties.write_text(
            PROPERTIES.format(node_id=node_id, data=self.data, **places) + given
        )
        self._process: subprocess.Popen[bytes] | None = None
        tool(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            f"--cluster-id={CLUSTER_ID}",
            f"--config={self._properties}",
            *(
                f"--add-scram=SCRAM-SHA-512=[name={name},password={password}]"
                for name, password in (users or {}).items()
            ),
        )

    def __enter__(self) -> "Kafka":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        assert self._process is None, "Kafka is up"
        command = [*java_command(), "-Xmx512m", f"-Dlog4j2.configurationFile={self._logging}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        host, port = self.address.split(":")
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                return
            time.sleep(PAUSE_S)
        self.kill()
        raise AssertionError(f"Kafka does not start: {self.said()[-2000:]}")

    def stop(self) -> None:
        """Stop it in order, with the clean shutdown marker."""
        assert self._process is not None, "Kafka is down"
        self._process.terminate()
        self._process.wait(STOP_S)
        self._process = None
        assert (self.data / ".kafka_cleanshutdown").exists(), self.said()[-2000:]

    def kill(self) -> None:
        """Kill it (SIGKILL). Do nothing if it is down."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def said(self) -> str:
        """Return its log, of all its processes."""
        return self._log.read_text(errors="replace")


def tool(name: str, *arguments: str) -> str:
    """Run one of Kafka's tools; return its output."""
    finished = subprocess.run(
        [*java_command(), "-Xmx256m", name, *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
    )
    assert finished.returncode == 0, f"{name}: {finished.stdout}{finished.stderr}"
    return finished.stdout + finished.stderr


def dump(*files: Path, deep: bool = True, sanity: bool = False) -> str:
    """Return the output of Kafka's dump tool for these files of one kind."""
    flags = ["--deep-iteration", "--print-data-log"] if deep else []
    flags += ["--index-sanity-check"] if sanity else []
    joined = ",".join(str(path) for path in files)
    return tool("org.apache.kafka.tools.DumpLogSegments", f"--files={joined}", *flags)
