"""What a status without our detail means: it comes from gRPC itself, a proxy, or another server.

Such a status has a code and a text, and the text is for gRPC's own developers. Here it becomes a
typed error whose sentence says what to check. Whether the call may have been executed is decided by
the code alone, except where the text proves that no connection was ever made: then it is NotSent.
The texts are those of grpc's core; one that changes makes a sentence vaguer, never wrong. Pure.
"""

from typing import Final

from ..errors import (
    Lost,
    MessageTooLarge,
    NotImplementedHere,
    NotSent,
    QuorumlogError,
    TimedOut,
)

# How grpc says that no connection could be made: nothing was sent.
_NO_CONNECTION: Final = "failed to connect to all addresses"
_NO_NAME: Final = "errors resolving "
_NO_ADDRESS: Final = "the target uri is not valid"
# How it says why. In a process whose locale is not English the kernel's words are translated.
_REFUSED: Final = "Connection refused"
_HTTP1: Final = "Trying to connect an http1.x server"
_NOT_HTTP2: Final = "Failed parsing HTTP/2"
_HUNG_UP: Final = ("Socket closed", "Connection reset", "Broken pipe", "recvmsg:")
_SILENT: Final = "before receiving SETTINGS frame"
_NO_HANDSHAKE: Final = "tcp handshaker shutdown"  # of TCP itself, in time
_HTTP_STATUS: Final = "http2 header with status"


def explain_status(
    *, code: str, text: str, path: str, address: str, unknown: type[QuorumlogError]
) -> QuorumlogError:
    """Return the error for a status by its name and text.

    `unknown` is the class for all that leaves the outcome open: Lost or StreamBroken.
    """
    where = f"{path} at {address}"
    if code == "DEADLINE_EXCEEDED":
        return TimedOut(f"{where}: the deadline passed")
    if _HTTP_STATUS in text:  # before UNIMPLEMENTED, which a proxy's 404 is told as
        return unknown(f"{where}: {_PROXY} ({text})")
    if code == "UNIMPLEMENTED":
        return NotImplementedHere(
            f"{where}: the server does not offer this call; check that the address is a broker's "
            "port for clients and that its version has the call"
        )
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in text:
        return MessageTooLarge(f"{where}: {text}")
    if code in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
        return unknown(
            f"{where}: {code}: {text}; brokers ask for no credentials: check what is in between"
        )
    if code == "UNKNOWN" and _NO_ADDRESS in text:
        return NotSent(f"{address!r} is no address; give host:port")
    if code == "UNAVAILABLE":
        refusal = _no_connection(text, address)
        if refusal is not None:
            return refusal
        return unknown(
            f"{where}: the connection broke and the outcome is unknown ({text}); check the "
            "broker's log, and what is in between"
        )
    return unknown(f"{where}: {code}: {text}")


def is_unanswered(text: str) -> bool:
    """Whether a status' text says that an attempt to connect got no answer in its time, which a
    longer one may get."""
    return text.startswith(_NO_CONNECTION) and (_SILENT in text or _NO_HANDSHAKE in text)


_PROXY: Final = (
    "what answered is a web server or a proxy, no broker; check the address, and that whatever is "
    "in between passes gRPC (HTTP/2) on"
)


def _no_connection(text: str, address: str) -> QuorumlogError | None:
    """Return the error of a connection that was never made, None when there was one."""
    if text.startswith(_NO_NAME):
        host = address.rpartition(":")[0] or address
        if "://" in address:
            return NotSent(f"{address!r} is no address; give host:port without a scheme")
        return NotSent(f"the name {host} does not resolve; check the address {address}")
    if not text.startswith(_NO_CONNECTION):
        return None
    if _HTTP1 in text:
        return NotSent(f"{address} is a web server's port; check the address: give the gRPC one")
    if _NOT_HTTP2 in text:
        return NotSent(f"{address} does not speak gRPC; check the address and port")
    if _REFUSED in text:
        return NotSent(f"{address} refused the connection: nothing listens there")
    if _SILENT in text:
        return NotSent(
            f"{address} took the connection and says nothing; check that it is a broker's gRPC "
            "port, and whether the broker hangs"
        )
    if _NO_HANDSHAKE in text:
        return Lost(
            f"{address} does not answer attempts to connect; check the address, that the machine "
            "is up, and that no firewall is in between"
        )
    if any(words in text for words in _HUNG_UP):
        return NotSent(
            f"{address} closes the connection at once; check that it is a broker's gRPC port: "
            "one that wants TLS does so too, and brokers speak plain text"
        )
    reason = text.rpartition("last error: ")[2]
    return Lost(f"{address} cannot be reached ({reason}); check the address and the network")
