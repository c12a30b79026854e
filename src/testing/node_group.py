"""A group of nodes with a common folder and common ports."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from ..errors import InvalidRequest, QuorumlogError, UnknownServerError
from .node_folder import NodeFolder
from .node_process import NodeProcess
from .ports import Ports

NAME_MAX: Final = 100  # characters of a fresh topic's name before its random suffix


class NodeGroup:
    """A folder, ports, and nodes by number; `close` removes all of them."""

    def __init__(self, timeout_s: float) -> None:
        """Create an empty group; `timeout_s` bounds a start."""
        self.home = NodeFolder()
        self.ports = Ports()
        self.nodes: dict[int, NodeProcess] = {}
        self._timeout_s = timeout_s
        self._is_closed = False

    def add(
        self,
        number: int,
        name: str,
        rows: Mapping[str, object],
        routes: Mapping[str, str],
        *,
        secure: bool = False,
        password_file: str = "",
    ) -> None:
        """Add a node; see `NodeProcess`."""
        self.nodes[number] = NodeProcess(
            self.home,
            number,
            name,
            rows,
            routes=routes,
            secure=secure,
            password_file=password_file,
        )

    def node(self, number: int) -> NodeProcess:
        """Return a node; raises InvalidRequest for an unknown number."""
        if number not in self.nodes:
            has = ", ".join(str(each) for each in self.nodes)
            raise InvalidRequest(f"no node {number} in the cluster; its nodes are {has}")
        return self.nodes[number]

    def start(self, numbers: Iterable[int]) -> None:
        """Start the nodes that are down, concurrently, and return when all serve.

        Raises the first node's error and TimedOut; nodes that serve keep running.
        """
        if self._is_closed:
            raise InvalidRequest("closed: create a new one")
        started = [node for node in map(self.node, numbers) if not node.is_up]
        self.ports.lend()
        for node in started:
            node.start_nowait()
        refusal: QuorumlogError | None = None
        for node in started:
            try:
                node.wait_ready(self._timeout_s)
            except QuorumlogError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def check_alive(self) -> None:
        """Raise UnknownServerError if a node ended unexpectedly."""
        for node in self.nodes.values():
            node.check_alive()

    @contextmanager
    def complaining_last(self) -> Iterator[None]:
        """Kill nodes that ended unexpectedly, run the block, then raise UnknownServerError."""
        complaint: QuorumlogError | None = None
        for node in self.nodes.values():
            try:
                node.check_alive()
            except UnknownServerError as error:
                complaint = complaint or error
                node.kill()
        yield
        if complaint is not None:
            raise complaint

    def close(self) -> None:
        """Kill every node and remove every file; without effect in a fork, or the second time."""
        if self._is_closed or os.getpid() != self.home.owner:
            return
        self._is_closed = True
        for node in self.nodes.values():
            node.kill()
        self.ports.close()
        self.home.close()


class NodeFixture(ABC):
    """Start and end of nodes by `with` or `async with`."""

    def __init__(self, group: NodeGroup) -> None:
        self._group = group

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
        import asyncio  # half of the import time of this package, and often not needed

        return await asyncio.get_running_loop().run_in_executor(None, self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.close)

    @abstractmethod
    def start(self) -> None:
        """Start all nodes and return once they serve."""

    def check_alive(self) -> None:
        """Raise UnknownServerError, with the end of the log, if a process ended unexpectedly."""
        self._group.check_alive()

    def close(self) -> None:
        """Kill every process and remove its files; none can be started again."""
        self._group.close()


def fresh_name(beginning: str) -> str:
    """Return a unique topic name that starts with the valid characters of `beginning`."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", beginning)[:NAME_MAX].strip("-.")
    return f"{stem or 'topic'}-{os.urandom(4).hex()}"
