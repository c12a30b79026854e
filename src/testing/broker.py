"""A broker for tests: a single node in a process that ends with the test."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .node_group import NodeFixture, NodeGroup, fresh_name
from .node_settings import BOTH, NodeEndpoints, check_settings, node_rows

if TYPE_CHECKING:
    from typing import Unpack

    from ..clients.blocking import Log
    from ..clients.config import ClientSettings

START_MS: Final = 60_000  # for a busy machine; usually under a second
NODE: Final = 1


class Broker(NodeFixture):
    """A broker in a process of its own, with its own ports and folder.

    ```python
    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})
    ```
    Use it in `with` or `async with`, or call `start` and `close`. It ends with this process,
    however that one ends, and leaves no files. `kill`, `pause` and `resume` return quickly; from
    asyncio call slower methods as `await asyncio.to_thread(broker.restart)`.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        secure: bool = False,
        timeout_ms: int = START_MS,
    ) -> None:
        """Create the broker without starting it.

        `settings` are those of docs/configuration.md by name, except addresses and ids. A given
        `data_dir` is kept; otherwise the data are removed with the broker. A start may take
        `timeout_ms`. With `secure` clients need TLS, a password and ACLs, and there is the
        administrator "admin".
        """
        check_settings(settings or {})
        super().__init__(NodeGroup(timeout_ms / 1000))
        self._addresses = NodeEndpoints.take(self._group.ports)
        place = self._group.home.folder / "data" if data_dir is None else Path(data_dir).absolute()
        self.data_dir = place
        rows = node_rows(NODE, self._addresses, roles=BOTH, data_dir=place)
        self.is_secure = secure
        self._group.add(NODE, "the broker", {**rows, **(settings or {})}, routes={}, secure=secure)
        self._node = self._group.node(NODE)

    # --- addresses and state ----------------------------------------------------------------

    @property
    def kafka(self) -> str:
        """The "host:port" for Kafka clients: their bootstrap.servers."""
        return self._addresses.kafka

    @property
    def grpc(self) -> str:
        """The "host:port" for `quorumlog.connect` and the command line."""
        return self._addresses.grpc

    @property
    def http(self) -> str:
        """The "host:port" of /metrics, /health and /ready."""
        return self._addresses.http

    @property
    def ca_file(self) -> str:
        """PEM file with the authority of a secure broker's certificate."""
        return str(self._security / "ca.pem")

    @property
    def password(self) -> str:
        """The password of a secure broker's administrator, the user "admin"."""
        return (self._security / "admin.password").read_text(encoding="utf-8").strip()

    @property
    def _security(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}-security")

    def kafka_config(self, user: str = "admin", password: str | None = None) -> dict[str, str]:
        """Return the configuration of a Kafka client in the names of librdkafka; of a secure
        broker, with a user and the password."""
        if not self.is_secure:
            return {"bootstrap.servers": self.kafka}
        from ..server.secure_defaults import SecurityFolder

        return SecurityFolder(path=self._security).kafka_config(self.kafka, user, password)

    @property
    def log_file(self) -> Path:
        """The log file of all its processes."""
        return self._node.log_file

    @property
    def is_up(self) -> bool:
        """True if it was started, and not stopped or killed since."""
        return self._node.is_up

    @property
    def pid(self) -> int:
        """The process id; raises InvalidRequest if it is down."""
        return self._node.pid

    # --- start and stop ---------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker and return once it serves; without effect if it is up.

        Raises the error of a failed start, such as InvalidConfig, and TimedOut, each with the end
        of the log.
        """
        self._group.start([NODE])

    def stop(self) -> None:
        """Stop the broker cleanly; without effect if it is down. Data and addresses remain."""
        self._node.stop()

    def restart(self) -> None:
        """Stop the broker cleanly and start it."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill the process (SIGKILL), like a crash; without effect if it is down."""
        self._node.kill()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): connections stay open without answers. Raises
        InvalidRequest if it is down."""
        self._node.pause()

    def resume(self) -> None:
        """Resume a paused process; without effect otherwise."""
        self._node.resume()

    def restore(self) -> None:
        """Undo every fault: resume or start the broker as needed.

        Raises UnknownServerError, once it runs again, if the process had ended unexpectedly.
        """
        self.resume()
        with self._group.complaining_last():
            self.start()

    # --- use ----------------------------------------------------------------------------------

    def connect(self, **settings: "Unpack[ClientSettings]") -> "Log":
        """Return a client, as `quorumlog.connect` does; close it, or use it in `with`. That of a
        secure broker is the administrator's, unless other credentials are given."""
        from ..clients.blocking import connect
        from ..clients.credentials import SCRAM, TLS

        if self.is_secure:
            settings.setdefault("tls", TLS(ca=self.ca_file))
            settings.setdefault("credentials", SCRAM(user="admin", password=self.password))
        return connect(self.grpc, **settings)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> str:
        """Create a topic and return its name, a unique one unless given. Clients can use it at
        once."""
        from .cluster_state import NodeAddress, create_topic

        topic = fresh_name("topic") if name is None else name
        if self.is_secure:
            with self.connect() as log:
                log.admin.create_topic(topic, partitions=partitions, configs=configs)
            return topic
        create_topic(
            [NodeAddress(self.grpc)] if self._node.is_up else [],
            topic,
            partitions=partitions,
            replication=None,
            configs=configs or {},
            timeout_s=START_MS / 1000,
        )
        return topic

    def log(self) -> str:
        """Return the log of all its processes."""
        return self._node.log()
