"""Ports that stay a test's own from its start to its end.

A port that was found free and let go may be anybody's a moment later: another test's, or that of an
outgoing connection. So each is kept by a socket that is bound and never listens, beside which a
node may listen where the system permits that (Linux); others get no such port, and while the node
is down, connections to it are refused.
"""

import socket
import sys
from typing import Final

HOST: Final = "127.0.0.1"
MAY_SHARE: Final = sys.platform == "linux"


class Ports:
    """Ports of this machine, kept until `close`."""

    def __init__(self) -> None:
        self._kept: list[socket.socket] = []

    def take(self) -> str:
        """Return the address of a further port, "host:port"."""
        kept = socket.socket()
        self._kept.append(kept)
        kept.bind((HOST, 0))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: before, the system
        port: int = kept.getsockname()[1]  # might have given a port that others share
        return f"{HOST}:{port}"

    def lend(self) -> None:
        """Have nodes listen from here on."""
        if not MAY_SHARE:
            self.close()

    def close(self) -> None:
        """Let all of them go."""
        while self._kept:
            self._kept.pop().close()
