"""Certificates for tests: an authority, certificates of a server and of clients, and invalid
ones."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quorumlog.runtime.tls import TlsFiles
from quorumlog.server.certificates import create_authority, issue


@dataclass(frozen=True)
class Certificates:
    """A certificate authority in a folder."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Certificates":
        """Create an authority, with a certificate `server` for this machine."""
        create_authority(folder, name="test authority")
        issue(folder, "server", name="server", hosts=("localhost", "127.0.0.1", "::1"))
        return cls(folder)

    @property
    def ca(self) -> str:
        """Return the path of the authority's certificate."""
        return str(self.folder / "ca.pem")

    def server(self, *, client_auth: str = "none", name: str = "server") -> TlsFiles:
        """Return the TLS files of a server."""
        return TlsFiles(
            certificate=str(self.folder / f"{name}.pem"),
            key=str(self.folder / f"{name}.key"),
            ca=self.ca if client_auth != "none" else "",
            client_auth=client_auth,
        )

    def client(self, user: str = "") -> TlsFiles:
        """Return the TLS files of a client, with a certificate if it has a name."""
        if not user:
            return TlsFiles(ca=self.ca)
        if not (self.folder / f"{user}.pem").exists():
            issue(self.folder, user, name=user)
        return TlsFiles(
            certificate=str(self.folder / f"{user}.pem"),
            key=str(self.folder / f"{user}.key"),
            ca=self.ca,
        )

    def pair(self, name: str) -> Path:
        """Write a file with a certificate and its key, as a Java program reads them; return its
        path."""
        pair = self.folder / f"{name}-pair.pem"
        parts = [(self.folder / f"{name}.{suffix}").read_text() for suffix in ("key", "pem")]
        pair.write_text("".join(parts))
        return pair

    def end(self, name: str, ends: datetime) -> None:
        """Replace a certificate by one that is valid until then."""
        path = self.folder / f"{name}.pem"
        old = x509.load_pem_x509_certificate(path.read_bytes())
        authority_key = serialization.load_pem_private_key(
            (self.folder / "ca.key").read_bytes(), None
        )
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        builder = (
            x509.CertificateBuilder()
            .subject_name(old.subject)
            .issuer_name(old.issuer)
            .public_key(old.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - timedelta(days=1))
            .not_valid_after(ends)
        )
        for extension in old.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        signed = builder.sign(authority_key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def settings(self) -> dict[str, Any]:
        """Return the settings of a node with the server's certificate."""
        return {
            "ssl_certificate_file": str(self.folder / "server.pem"),
            "ssl_key_file": str(self.folder / "server.key"),
            "ssl_ca_file": self.ca,
        }


def self_signed(folder: Path, *, hosts: tuple[str, ...] = (), is_expired: bool = False) -> TlsFiles:
    """Return a self-signed certificate, possibly expired, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "self")])
    now = datetime.now(UTC)
    ends = now - timedelta(days=1) if is_expired else now + timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(ends)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in hosts or ("localhost",)]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    (folder / "self.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "self.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (folder / "self.key").chmod(0o600)
    return TlsFiles(
        certificate=str(folder / "self.pem"),
        key=str(folder / "self.key"),
        ca=str(folder / "self.pem"),
    )
