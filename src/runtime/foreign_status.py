"""Errors for a status without a quorumlog detail: from gRPC itself, a proxy, or another server.

Such a status has a code and a text for gRPC's developers. Here it becomes a typed error with a
remedy. The code alone decides whether the call may have been executed, unless the text proves that
there was no connection: then it is ConnectionFailed. The texts are those of grpc's core. A changed
text makes a message less specific, never wrong. Pure.
"""

from typing import Final

from ..errors import (
    ConnectionFailed,
    MessageTooLarge,
    NotImplementedHere,
    OutcomeUnknown,
    QuorumlogError,
    TimedOut,
)

# grpc's texts for a failed connection: nothing was sent.
_NO_CONNECTION: Final = "failed to connect to all addresses"
_NO_NAME: Final = "errors resolving "
_NO_ADDRESS: Final = "the target uri is not valid"
# grpc's texts for the cause. With a non-English locale the kernel's words are translated.
_SILENT: Final = "before receiving SETTINGS frame"
_NO_HANDSHAKE: Final = "tcp handshaker shutdown"  # of TCP itself, within the timeout
_NOT_VERIFIED: Final = "CERTIFICATE_VERIFY_FAILED: "
_UNKNOWN_AUTHORITY: Final = ("issuer certificate", "self signed", "self-signed")
_NO_TLS: Final = "Tls handshake failed"
_HTTP_STATUS: Final = "http2 header with status"

_GIVE_TLS: Final = (
    "tls=quorumlog.TLS(ca=...) in Python, security_protocol and tls_ca_file in a profile"
    " (QUORUMLOG_CONFIG), securityProtocol and tlsCaFile in Spark"
)
_GIVE_CA: Final = (
    "tls=quorumlog.TLS(ca=...) in Python, tls_ca_file in a profile (QUORUMLOG_CONFIG), tlsCaFile in"
    " Spark"
)
_HUNG_UP: Final = (
    "the connection was closed at once; check that it is a broker's gRPC port, and whether it"
    f" requires TLS ({_GIVE_TLS}) or a certificate of the client"
)
_CAUSES: Final = (
    ("Trying to connect an http1.x server", "a web server's port; use the broker's gRPC port"),
    ("Failed parsing HTTP/2", "not a gRPC server; check the address and port"),
    ("Connection refused", "connection refused; check that the broker runs"),
    (
        _SILENT,
        "connected without a response; check that it is a broker's gRPC port, and whether the"
        " broker hangs",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "the server does not use TLS on this port; connect without TLS, or check the port",
    ),
    (
        "missing selected ALPN property",
        "not a gRPC port, perhaps the Kafka port; use the broker's gRPC port",
    ),
    (
        "Handshake read failed",
        "the connection was closed in the TLS handshake; check that it is a broker's gRPC port with"
        " TLS, not its Kafka port",
    ),
    (
        "Hostname Verification Check failed",
        "the broker's certificate has another name; connect by a name or an address that is in the"
        " certificate",
    ),
    *(
        (words, _HUNG_UP)
        for words in ("Socket closed", "Connection reset", "Broken pipe", "recvmsg:")
    ),
)
"""Texts of grpc's core, the first that fits, and the cause with a remedy. Nothing was sent."""


def explain_status(
    *, code: str, text: str, path: str, address: str, unknown: type[QuorumlogError]
) -> QuorumlogError:
    """Return the error for a status by its name and text.

    `unknown` is the class for an unknown outcome: OutcomeUnknown or StreamBroken.
    """
    where = f"{path} at {address}"
    if code == "DEADLINE_EXCEEDED":
        return TimedOut(f"{where}: the deadline passed")
    if _HTTP_STATUS in text:  # before UNIMPLEMENTED, which grpc reports for a proxy's 404
        return unknown(f"{where}: {_PROXY} ({text})")
    if code == "UNIMPLEMENTED":
        return NotImplementedHere(
            f"{where}: the server does not offer this call; check that the address is a broker's "
            "gRPC port and that its version has the call"
        )
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in text:
        return MessageTooLarge(f"{where}: {text}")
    if code in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
        return unknown(
            f"{where}: {code}: {text}; this is no error of a broker: check proxies in between"
        )
    if code == "UNKNOWN" and _NO_ADDRESS in text:
        return ConnectionFailed(f"{address!r}: not an address; use host:port")
    if code == "UNAVAILABLE":
        refusal = _no_connection(text, address)
        if refusal is not None:
            return refusal
        return unknown(
            f"{where}: the connection broke and the outcome is unknown ({text}); check the "
            "broker's log, and proxies in between"
        )
    return unknown(f"{where}: {code}: {text}")


def is_unanswered(text: str) -> bool:
    """Return True if a connection attempt timed out without a response, so that a longer one may
    succeed."""
    return text.startswith(_NO_CONNECTION) and (_SILENT in text or _NO_HANDSHAKE in text)


_PROXY: Final = (
    "a web server or proxy answered instead of a broker; check the address, and that proxies in "
    "between pass gRPC (HTTP/2)"
)


def _no_connection(text: str, address: str) -> QuorumlogError | None:
    """Return the error of a connection that was never open, or None if it was."""
    if text.startswith(_NO_NAME):
        host = address.rpartition(":")[0] or address
        if "://" in address:
            return ConnectionFailed(f"{address!r}: not an address; use host:port without a scheme")
        return ConnectionFailed(f"{address}: the name {host} does not resolve; check the address")
    if not text.startswith(_NO_CONNECTION):
        return None
    if _NO_HANDSHAKE in text:
        return OutcomeUnknown(
            f"{address}: no response to connection attempts; check the address, that the machine "
            "is up, and that no firewall is in between"
        )
    cause = next((cause for words, cause in _CAUSES if words in text), _tls_failure(text))
    if cause:
        return ConnectionFailed(f"{address}: {cause}")
    reason = text.rpartition("last error: ")[2]
    return OutcomeUnknown(f"{address}: not reachable ({reason}); check the address and the network")


def _tls_failure(text: str) -> str:
    """Return the cause of another failed TLS handshake with a remedy, "" if it is none."""
    if _NOT_VERIFIED in text:
        cause = text.rpartition(_NOT_VERIFIED)[2].removesuffix(": OK")
        refusal = f"the broker's certificate is not accepted: {cause}"
        if any(words in cause for words in _UNKNOWN_AUTHORITY):
            return f"{refusal}; give the authority that signed it: {_GIVE_CA}"
        return f"{refusal}; renew it, or check the clocks"
    if _NO_TLS in text:
        return f"the TLS handshake failed: {text.rpartition(_NO_TLS)[2].strip()}"
    return ""
