"""One broker for a test: a node that is alone, in a process that goes with the test."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from .node_group import NodeGroup, fresh_name
from .node_settings import BOTH, NodeAddresses, check_settings, node_rows

if TYPE_CHECKING:
    from typing import Unpack

    from ..clients.blocking import Log
    from ..clients.config import ClientSettings

START_S: Final = 60.0  # for a busy machine; under a second is usual
NODE: Final = 1


class Broker:
    """A broker in a process of its own, on ports and in a folder that nobody else has.

    ```python
    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})
    ```
    In `with` and `async with` alike, or `start` it and `close` it. It ends with this process,
    however that one ends, and leaves no file behind. `kill`, `pause` and `resume` take a moment;
    from asyncio call what takes longer as `await asyncio.to_thread(broker.restart)`.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        timeout_s: float = START_S,
    ) -> None:
        """`settings` are those of docs/configuration.md by name, but for addresses and ids;
        `data_dir` is kept, while one that is not given goes with the broker. A start may take
        `timeout_s`."""
        check_settings(settings or {})
        self._group = NodeGroup(timeout_s)
        self._addresses = NodeAddresses.take(self._group.ports)
        place = self._group.home.folder / "data" if data_dir is None else Path(data_dir).absolute()
        self.data_dir = place
        rows = node_rows(NODE, self._addresses, roles=BOTH, data_dir=place)
        self._group.add(NODE, "the broker", {**rows, **(settings or {})}, routes={})
        self._node = self._group.node(NODE)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio  # half of the room's import, and often not needed

        return await asyncio.get_running_loop().run_in_executor(None, self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.close)

    # --- where it is -------------------------------------------------------------------------

    @property
    def kafka(self) -> str:
        """Where clients of the Kafka protocol connect, "host:port": their bootstrap.servers."""
        return self._addresses.kafka

    @property
    def grpc(self) -> str:
        """Where `quorumlog.connect` and the command line connect, "host:port"."""
        return self._addresses.grpc

    @property
    def http(self) -> str:
        """Where /metrics, /health and /ready are, "host:port"."""
        return self._addresses.http

    @property
    def log_file(self) -> Path:
        """What it has said in all its lives."""
        return self._node.log_file

    @property
    def is_up(self) -> bool:
        """Whether it was started, and not stopped or killed since."""
        return self._node.is_up

    @property
    def pid(self) -> int:
        """Its process; raises InvalidRequest when it is down."""
        return self._node.pid

    # --- lives -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, and return once it serves; without effect when it is up.

        Raises what it says when it cannot serve, such as InvalidConfig, and TimedOut: both with the
        end of its log.
        """
        self._group.start([NODE])

    def stop(self) -> None:
        """End it in order; without effect when it is down. Data stay, and so do its addresses."""
        self._node.stop()

    def restart(self) -> None:
        """End it in order, and start it again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL); without effect when it is down."""
        self._node.kill()

    def pause(self) -> None:
        """Stop its time (SIGSTOP): connections live, and nothing answers. Raises InvalidRequest
        when it is down."""
        self._node.pause()

    def resume(self) -> None:
        """Let it go on after a pause; without effect when there was none."""
        self._node.resume()

    def check_alive(self) -> None:
        """Raise UnknownServerError, with the end of its log, when it ended by itself."""
        self._group.check_alive()

    def restore(self) -> None:
        """Undo every fault: resume or start it if need be. Raises UnknownServerError, when it runs
        again, if it had ended by itself."""
        self.resume()
        with self._group.complaining_last():
            self.start()

    def close(self) -> None:
        """Kill it, and leave nothing of it behind; it cannot be started again."""
        self._group.close()

    # --- what is in it -----------------------------------------------------------------------

    def connect(self, **settings: "Unpack[ClientSettings]") -> "Log":
        """Return a client of it, as `quorumlog.connect` does; close it, or use it in `with`."""
        from ..clients.blocking import connect

        return connect(self.grpc, **settings)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> str:
        """Create a topic, of a name that there was never one of when none is given; return its
        name. Every client may use it then."""
        from .asking import create_topic

        topic = fresh_name("topic") if name is None else name
        create_topic(
            [self.grpc] if self._node.is_up else [],
            topic,
            partitions=partitions,
            replication=None,
            configs=configs or {},
            timeout_s=START_S,
        )
        return topic

    def log(self) -> str:
        """What it has written to its log, in all its lives."""
        return self._node.log()
