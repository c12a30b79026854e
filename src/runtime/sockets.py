"""Socket set-up for byte connections: resolve, bind, connect."""

import asyncio
import errno
import ipaddress
import socket
from typing import Any, Final, TypeAlias

from ..errors import AddressInUse

# On Windows SO_REUSEADDR would bind a port on which another process listens.
_BIND_OPTION: Final[int] = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)

SocketAddress: TypeAlias = tuple[Any, ...]


async def _resolve(
    address: str, *, passive: bool
) -> list[tuple[socket.AddressFamily, SocketAddress]]:
    """Return the socket addresses of "host:port". An IPv6 host is in brackets."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise OSError(errno.EINVAL, f"{address}: not host:port with a port below 65536")
    found = await asyncio.get_running_loop().getaddrinfo(
        host.strip("[]") or None,
        int(port),
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE if passive else 0,
    )
    return [(family, where) for family, _, _, _, where in found]


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches a host: an address of loopback, or localhost. Other
    names are not resolved."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _new_socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


async def bind(address: str) -> socket.socket:
    """Return a bound socket. Raise AddressInUse, or another OSError of bind."""
    found = await _resolve(address, passive=True)
    # "localhost" resolves to both families; a client that uses 127.0.0.1 must reach this socket.
    family, where = min(found, key=lambda one: one[0] is not socket.AF_INET)
    bound = _new_socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, _BIND_OPTION, 1)
        bound.bind(where)
        return bound
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{address}: another socket is listening") from error
        raise


async def connect(address: str) -> tuple[socket.socket, SocketAddress]:
    """Return a socket connected to the host's first reachable address, and that address.

    Raise the OSError of the last attempt.
    """
    failure: OSError = OSError(errno.EADDRNOTAVAIL, f"{address}: the host has no address")
    for family, where in await _resolve(address, passive=False):
        attempt = _new_socket(family)
        try:
            await asyncio.get_running_loop().sock_connect(attempt, where)
        except OSError as error:
            attempt.close()
            failure = error
        except asyncio.CancelledError:
            attempt.close()
            raise
        else:
            if attempt.getsockname()[:2] != where[:2]:
                return attempt, where
            # TCP may connect a free ephemeral port of this machine to itself. No process listens
            # there.
            attempt.close()
            failure = ConnectionRefusedError(
                errno.ECONNREFUSED, f"{address}: no process listens on the port"
            )
    raise failure


def name_of(where: SocketAddress) -> str:
    host, port = where[0], where[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_near(connected: socket.socket) -> bool:
    """Return True if the peer is on this machine."""
    try:
        return bool(connected.getsockname()[0] == connected.getpeername()[0])
    except OSError:
        return False  # already disconnected, which the next read reports
