"""Encryption and authentication of gRPC listeners and channels."""

from typing import TYPE_CHECKING, Any, Final

from .ports import CallPeer, ClientIdentity, PeerCertificate
from .quiet_grpc import grpc

if TYPE_CHECKING:
    from .tls import TlsCredentials, TlsFiles, TlsPem

_AUTHORIZATION: Final = "authorization"
_ON_BEHALF_OF: Final = "quorumlog-on-behalf-of-bin"


def server_credentials(tls: "TlsCredentials") -> Any:
    """Return credentials that follow the changes of the files. A certificate of the client is
    either required or not asked for: gRPC cannot request one."""
    served = tls.pem

    def fetch() -> Any:
        """Return the new certificate before a handshake, None if it is unchanged."""
        nonlocal served
        if tls.pem is served:
            return None
        served = tls.pem
        return _configuration(served)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served), fetch, require_client_authentication=tls.requires_certificate
    )


def channel_credentials(tls: "TlsFiles | TlsCredentials") -> Any:
    """Return a channel's credentials; raises InvalidConfig."""
    pem = tls.channel_pem()
    return grpc.ssl_channel_credentials(
        root_certificates=pem.ca or None,
        private_key=pem.key or None,
        certificate_chain=pem.certificate or None,
    )


def peer_of(context: Any, host: str, port: str, *, has_tls: bool) -> CallPeer:
    """Return the facts about the client of a call. Raises SaslAuthenticationFailed for an expired
    certificate of a resumed session."""
    authorization, forwarded = "", None
    for key, value in context.invocation_metadata() or ():
        if key == _AUTHORIZATION and isinstance(value, str):
            authorization = value
        elif key == _ON_BEHALF_OF and isinstance(value, bytes):
            principal, _, client_host = value.decode(errors="replace").rpartition("\n")
            forwarded = ClientIdentity(principal, client_host)
    certificate = _certificate(context) if has_tls else None
    return CallPeer(host, certificate, authorization, forwarded, port)


def call_metadata(
    authorization: str, on_behalf_of: ClientIdentity | None
) -> tuple[tuple[str, str | bytes], ...] | None:
    """Return the metadata of a call, as `peer_of` reads it; an empty header is left out."""
    found: list[tuple[str, str | bytes]] = []
    if authorization:
        found.append((_AUTHORIZATION, authorization))
    if on_behalf_of is not None:
        text = f"{on_behalf_of.principal}\n{on_behalf_of.host}"
        found.append((_ON_BEHALF_OF, text.encode()))
    return tuple(found) or None


def _certificate(context: Any) -> PeerCertificate | None:
    import ssl  # needed with TLS only, as the next

    from .tls import certificate_of, resumed_certificate_of

    facts = context.auth_context()
    found = facts.get("x509_pem_cert")
    if not found:
        return None
    encoded = ssl.PEM_cert_to_DER_cert(found[0].decode("ascii"))
    is_resumed = facts.get("ssl_session_reused") == [b"true"]
    return (resumed_certificate_of if is_resumed else certificate_of)(encoded)


def _configuration(pem: "TlsPem") -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(pem.key, pem.certificate)], root_certificates=pem.ca or None
    )
