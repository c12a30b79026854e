"""Nodes that begin and end together."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ..errors import InvalidRequest, QuorumlogError, UnknownServerError
from .home import Home
from .node_process import NodeProcess
from .ports import Ports

NAME_MAX: Final = 100  # characters of a fresh topic's name before what makes it unlike others


class NodeGroup:
    """A folder, ports, and nodes by number; `close` leaves nothing of them."""

    def __init__(self, timeout_s: float) -> None:
        """A start may take `timeout_s`."""
        self.home = Home()
        self.ports = Ports()
        self.nodes: dict[int, NodeProcess] = {}
        self._timeout_s = timeout_s
        self._is_closed = False

    def add(
        self, number: int, name: str, rows: Mapping[str, object], routes: Mapping[str, str]
    ) -> None:
        """Add a node; see `NodeProcess`."""
        self.nodes[number] = NodeProcess(self.home, number, name, rows, routes=routes)

    def node(self, number: int) -> NodeProcess:
        """Return a node; raises InvalidRequest where there is none of this number."""
        if number not in self.nodes:
            has = ", ".join(str(each) for each in self.nodes)
            raise InvalidRequest(f"the cluster has no node {number}: it has {has}")
        return self.nodes[number]

    def start(self, numbers: Iterable[int]) -> None:
        """Start those of the nodes that are down, at once, and return when all of them serve.

        Raises what the first one says that does not, and TimedOut; those that serve run on.
        """
        if self._is_closed:
            raise InvalidRequest("everything of it is gone: make another one")
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
        """Raise UnknownServerError when a node ended by itself."""
        for node in self.nodes.values():
            node.check_alive()

    @contextmanager
    def complaining_last(self) -> Iterator[None]:
        """Take nodes that ended by themselves for killed ones, and raise UnknownServerError only
        behind the block."""
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
        """Kill every node, and remove every file; without effect in a fork, and the second time."""
        if self._is_closed or os.getpid() != self.home.owner:
            return
        self._is_closed = True
        for node in self.nodes.values():
            node.kill()
        self.ports.close()
        self.home.close()


def fresh_name(beginning: str) -> str:
    """Return a name for a topic that there was never one of, with this beginning as far as a
    topic's name may have it."""
    told = re.sub(r"[^A-Za-z0-9._-]+", "-", beginning)[:NAME_MAX].strip("-.")
    return f"{told or 'topic'}-{os.urandom(4).hex()}"
