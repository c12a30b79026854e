"""Ports that belong to a test from its start to its end.

A port found free and released may be taken a moment later, by another test or an outgoing
connection. So each port is held by a socket that is bound and never listens. On Linux a node may
listen beside it; no other process is assigned the port, and connections are refused while the node
is down.
"""

import socket
import sys
from typing import Final

HOST: Final = "127.0.0.1"
MAY_SHARE: Final = sys.platform == "linux"


class Ports:
    """Ports of this machine, held until `close`."""

    def __init__(self) -> None:
        self._kept: list[socket.socket] = []

    def take(self) -> str:
        """Return the "host:port" of a new port."""
        kept = socket.socket()
        self._kept.append(kept)
        kept.bind((HOST, 0))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: before, the system
        port: int = kept.getsockname()[1]  # could assign a shared port
        return f"{HOST}:{port}"

    def lend(self) -> None:
        """Release the ports for nodes to listen on, where the system does not share them."""
        if not MAY_SHARE:
            self.close()

    def close(self) -> None:
        """Release all ports."""
        while self._kept:
            self._kept.pop().close()
