"""Certificates, keys and authorities for TLS, from PEM files that may change at any time.

`TlsFiles.load` builds an `ssl.SSLContext`, and checks that the key belongs to the certificate. A
`TlsCredentials` keeps the newest good one: a connection uses the context of its start, so a change
of the files affects new connections only.
"""

import logging
import os
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from ..errors import InvalidConfig, SaslAuthenticationFailed
from .ports import PeerCertificate

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers of TLS 1.2: authenticated, with forward secrecy. Those of TLS 1.3 all are."""

SECRET_BYTES_MAX: Final = 4_096
NODES_BYTES_MAX: Final = 1 << 20
ID_DIGITS_MAX: Final = 10
CERTIFICATES_MAX: Final = 1_024  # with names that are kept

_log = logging.getLogger(__name__)

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

Stamp: TypeAlias = tuple[int, int, int]  # mtime in ns, inode and size of a file


class TlsPem(NamedTuple):
    """The contents of `TlsFiles`; empty: no such file."""

    key: bytes
    certificate: bytes
    ca: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of one side of TLS; "": none."""

    certificate: str = ""  # PEM: the own certificate, then intermediate ones
    key: str = ""  # PEM, readable by its owner alone
    key_password: str = ""  # a reference, see `secret_of`
    ca: str = ""  # PEM: the authorities of the peers' certificates; a client's "": the system's
    client_auth: str = "none"  # of a server: none, requested, required

    def server_context(self) -> ssl.SSLContext:
        """Return a context for the server's side. Raises InvalidConfig naming the file."""
        context = _new_context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        context.num_tickets = 1
        self._load(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return a context for the client's side, which verifies the server's name. Raises
        InvalidConfig naming the file."""
        context = _new_context(ssl.PROTOCOL_TLS_CLIENT)
        if not self.ca:
            context.load_default_certs()
        self._load(context)
        return context

    def pem(self) -> TlsPem:
        """Return the contents of the files, with the key decrypted. Raises InvalidConfig."""
        try:
            key = _read(self.key)
            if self.key_password:
                key = _decrypted(key, secret_of(self.key_password))
            return TlsPem(key=key, certificate=_read(self.certificate), ca=_read(self.ca))
        except OSError as error:
            raise InvalidConfig(f"{error.filename}: {error.strerror}") from error
        except (ValueError, TypeError) as error:  # of the key
            raise InvalidConfig(f"{self.certificate} and {self.key}: {error}") from error

    def channel_pem(self) -> TlsPem:
        """Return the present contents, for a client's channel. Raises InvalidConfig."""
        found = self.pem()
        if self.ca and not found.ca:
            raise InvalidConfig(f"{self.ca}: empty; give the authorities of the brokers")
        return found

    def version(self) -> object:
        """Return a value that differs after a change of `channel_pem`."""
        return self.stamp()

    def stamp(self) -> tuple[Stamp, ...]:
        """Return a value that differs after a change of a file."""
        return tuple(map(stamp_of, filter(None, (self.certificate, self.key, self.ca))))

    def _load(self, context: ssl.SSLContext) -> None:
        if self.ca:
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(
                    f"{self.ca}: no certificates of authorities: {_reason(error)}"
                ) from error
        if not self.certificate:
            return
        _check_private(self.key)
        password = secret_of(self.key_password) if self.key_password else ""
        try:
            context.load_cert_chain(self.certificate, self.key, password)
        except (OSError, ssl.SSLError, ValueError) as error:  # the last one: a long password
            raise InvalidConfig(
                f"{self.certificate} and {self.key}: no certificate with its key: {_reason(error)}"
            ) from error


class TlsCredentials:
    """The contexts of some files, reloaded when they change."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        connects: bool = False,
        check: Callable[[PeerCertificate], None] | None = None,
    ) -> None:
        """Load the files; with `connects` for connections to other servers, too. `check` raises
        InvalidConfig for a certificate that does not serve its purpose. Raises InvalidConfig."""
        self.files = files
        self._connects = connects
        self._check = check
        self._stamp = files.stamp()
        self._load()

    def _load(self) -> None:
        files = self.files
        context, pem = files.server_context(), files.pem()
        client_context = files.client_context() if self._connects else None
        if self._check is not None:
            self._check(_first_certificate(pem.certificate))
        self.context = context  # for new connections
        self.client_context = client_context  # for connections to others; None: there are none
        self.pem = pem

    @property
    def requires_certificate(self) -> bool:
        """True if clients must present a certificate."""
        return self.files.client_auth == "required"

    def channel_pem(self) -> TlsPem:
        """Return the contents that were loaded last, for a channel to another server."""
        return self.pem

    def version(self) -> object:
        """Return a value that differs after a change of `channel_pem`."""
        return self.pem

    def reload(self) -> bool:
        """Load files that have changed; return True if the context is a new one. Files that do not
        fit together leave the old context in use. Blocks on the files."""
        stamp = self.files.stamp()
        if stamp == self._stamp:
            return False
        try:
            self._load()
        except InvalidConfig as error:
            _log.warning("tls.not_reloaded error=%s", error)
            self._stamp = stamp  # reported once for each change
            return False
        self._stamp = stamp
        _log.info("tls.reloaded certificate=%s", self.files.certificate)
        return True


@lru_cache(CERTIFICATES_MAX)
def certificate_of(encoded: bytes) -> PeerCertificate:
    """Return the names of a certificate in DER, which the handshake has verified."""
    from cryptography import x509  # needed with certificates of clients only

    certificate = x509.load_der_x509_certificate(encoded)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):  # none, or malformed ones, which name no peer
        uris, hosts = [], []
    else:
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        hosts = names.get_values_for_type(x509.DNSName)
    return PeerCertificate(
        subject=certificate.subject.rfc4514_string(),
        uris=tuple(uris),
        hosts=tuple(hosts),
        expires_s=certificate.not_valid_after_utc.timestamp(),
    )


def resumed_certificate_of(encoded: bytes) -> PeerCertificate:
    """Return the names of the certificate of a resumed session. Its handshake has verified nothing:
    the certificate was valid when the session began. Raises SaslAuthenticationFailed if it has
    expired."""
    certificate = certificate_of(encoded)
    if time.time() > certificate.expires_s:
        raise SaslAuthenticationFailed(
            f"certificate of {certificate.subject!r}: expired; connect with a new certificate"
        )
    return certificate


def _first_certificate(pem: bytes) -> PeerCertificate:
    """Return the names of the first certificate of a PEM file, which peers see."""
    end = b"-----END CERTIFICATE-----"
    first = pem.partition(end)[0] + end
    return certificate_of(ssl.PEM_cert_to_DER_cert(first.decode("ascii").strip()))


def stamp_of(path: str) -> Stamp:
    """Return a value that differs after a change of the file."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_ino, status.st_size


def read_node_ids(path: str) -> frozenset[int]:
    """Return the node ids in a file, one a line; "#" begins a comment. Raises InvalidConfig."""
    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read(NODES_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: no node ids can be read: {_reason(error)}") from error
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    for line in filter(None, lines):
        if not (line.isascii() and line.isdecimal() and len(line) <= ID_DIGITS_MAX):
            raise InvalidConfig(f"{path}: {line!r} is no node id; give one id a line")
    return frozenset(int(line) for line in lines if line)


def secret_of(reference: str) -> str:
    """Return the secret behind a reference: "file:PATH", without the last line end, or "env:NAME"
    (KIP-297). Raises InvalidConfig, which never has the secret."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        found = os.environ.get(place)
        if found is None:
            raise InvalidConfig(f"the environment variable {place} is not set")
        return found
    if kind != "file":
        raise InvalidConfig("a secret is given as file:PATH or env:NAME, never itself")
    _check_private(place)
    try:
        with open(place, encoding="utf-8") as opened:
            found = opened.read(SECRET_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{place}: no secret can be read: {_reason(error)}") from error
    if len(found) > SECRET_BYTES_MAX:
        raise InvalidConfig(f"{place}: longer than {SECRET_BYTES_MAX} characters")
    return found.removesuffix("\n").removesuffix("\r")


def _new_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _reason(error: Exception) -> str:
    """Return the text of an error without the name of its file."""
    text = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(text or error)


def _read(path: str) -> bytes:
    if not path:
        return b""
    with open(path, "rb") as opened:
        return opened.read()


def _decrypted(key: bytes, password: str) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(key, password.encode()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _check_private(path: str) -> None:
    """Raise InvalidConfig if users other than the owner and the group can read a file."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from error
    if os.name == "posix" and mode & stat.S_IRWXO:
        raise InvalidConfig(
            f"{path}: every user of this machine can use it; run: chmod o-rwx {path}"
        )
