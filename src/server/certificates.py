"""Certificates for development and for small clusters: an authority in a folder, and the
certificates that it issues.

Keys are ECDSA P-256, which signs a handshake in tens of microseconds. A node's certificate has a
URI with its cluster, id and roles; a client's certificate has its user as common name.
"""

import ipaddress
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import InvalidConfig
from ..runtime.private_files import FOLDER_MODE, check_private, replace_file

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 397
BACKDATED: Final = timedelta(minutes=10)  # for nodes with a clock that is behind
NAME_MAX: Final = 64  # characters of a common name (RFC 5280, appendix A.1)
_AUTHORITY: Final = "ca"
_NEXT: Final = "ca-next"
_NEXT_KEY: Final = f"{_NEXT}.key"  # from `trust_both` until `renew_all`
KEY_MODE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """The facts of one certificate."""

    subject: str  # as in RFC 4514
    issuer: str
    hosts: tuple[str, ...]  # DNS names and IP addresses
    uris: tuple[str, ...]
    begins: datetime  # UTC
    ends: datetime  # UTC
    is_authority: bool
    fingerprint: str  # SHA-256, hexadecimal

    def days_left(self, now: datetime) -> int:
        """Return the whole days until it expires; negative after that."""
        return (self.ends - now).days


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePaths:
    """The files of a certificate."""

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(cls, folder: Path, name: str) -> "CertificatePaths":
        """Return the files of a certificate in the folder of its authority."""
        return cls(
            certificate=folder / f"{name}.pem",
            key=folder / f"{name}.key",
            authority=folder / f"{_AUTHORITY}.pem",
        )


def create_authority(folder: Path, *, name: str, days: int = AUTHORITY_DAYS) -> CertificatePaths:
    """Create an authority, in ca.pem and ca.key of a folder. Raises InvalidConfig if it has one
    already, DirectoryUnusable if other users can write to the folder."""
    paths = CertificatePaths.of(folder, _AUTHORITY)
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfig(f"{folder}: cannot be created: {error.strerror}") from error
    _check_owner(folder)
    if paths.certificate.exists() or paths.key.exists():
        raise InvalidConfig(
            f"{folder}: has an authority already; use it, change it with `quorumlog tls rotate`,"
            " or give another folder"
        )
    _write_pair(paths, *_new_authority(_name(name), days))
    return paths


def trust_both(folder: Path) -> CertificatePaths:
    """Begin to change the authority of a folder: add a new one of the same name to ca.pem. The old
    one signs until `renew_all`. Raises InvalidConfig if a change has begun."""
    authority, _ = _authority(folder)
    paths = CertificatePaths.of(folder, _AUTHORITY)
    if len(_load(paths.certificate)) > 1:
        step = "renew" if (folder / _NEXT_KEY).exists() else "trust-new"
        raise InvalidConfig(
            f"{paths.certificate}: trusts more than one authority already; end that change with"
            f" `quorumlog tls rotate {folder} {step}`"
        )
    added, key = _new_authority(authority.subject, AUTHORITY_DAYS)
    paths = replace(paths, key=folder / _NEXT_KEY)
    _write_pair(paths, [authority, *added], key)
    return paths


def renew_all(folder: Path) -> list[CertificatePaths]:
    """Sign with the new authority of `trust_both`, and renew the certificates of the old one.
    Return their files. Raises InvalidConfig without a new authority. An interrupted call can be
    repeated."""
    paths = CertificatePaths.of(folder, _AUTHORITY)
    _check_has_begun(folder)
    if (folder / _NEXT_KEY).exists():
        (folder / _NEXT_KEY).replace(paths.key)
    return [renew(folder, path.stem) for path in _signed_by_others(folder)]


def trust_new(folder: Path) -> CertificatePaths:
    """End the change of an authority: remove the old one from ca.pem. Raises InvalidConfig while it
    signs, or certificates of it are in the folder."""
    _check_has_begun(folder)
    signed = [folder / _NEXT_KEY] if (folder / _NEXT_KEY).exists() else _signed_by_others(folder)
    if signed:
        raise InvalidConfig(
            f"{signed[0]}: not in use yet, or of the old authority; run `quorumlog tls rotate"
            f" {folder} renew` first"
        )
    paths = CertificatePaths.of(folder, _AUTHORITY)
    authority, key = _authority(folder)
    _write_pair(paths, [authority], key)
    return paths


def issue(
    folder: Path,
    file_name: str,
    *,
    name: str,
    hosts: Sequence[str] = (),
    uris: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
    replace: bool = False,
) -> CertificatePaths:
    """Issue a certificate by the authority of a folder, in FILE_NAME.pem and FILE_NAME.key.

    `name` is the common name, `hosts` are DNS names and IP addresses of a server. Raises
    InvalidConfig without an authority, for an invalid name or host, and for existing files unless
    `replace`; DirectoryUnusable if other users can write to the folder.
    """
    is_reserved = file_name in (_AUTHORITY, _NEXT)
    if is_reserved or not file_name or os.sep in file_name or file_name.startswith("."):
        raise InvalidConfig(f"{file_name!r} is no name for a certificate's files")
    authority, authority_key = _authority(folder)
    paths = CertificatePaths.of(folder, file_name)
    if not replace and (paths.certificate.exists() or paths.key.exists()):
        raise InvalidConfig(f"{paths.certificate}: exists already; renew it, or give another name")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.subject, key.public_key(), days)
    names = [*map(_host, hosts), *map(x509.UniformResourceIdentifier, uris)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    basic = x509.BasicConstraints(ca=False, path_length=None)
    builder = builder.add_extension(basic, critical=True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
        critical=False,
    )
    _write_pair(paths, [builder.sign(authority_key, hashes.SHA256())], key)
    return paths


def renew(folder: Path, file_name: str, *, days: int = CERTIFICATE_DAYS) -> CertificatePaths:
    """Issue a certificate again, with a new key, for the same name, hosts and URIs. Raises the
    errors of `issue`."""
    _check_owner(folder)
    path = CertificatePaths.of(folder, file_name).certificate
    facts = inspect(path)[0]
    common = [
        str(each.value)
        for each in _load(path)[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    if not common:
        raise InvalidConfig(f"{path}: the certificate has no common name; issue another one")
    return issue(
        folder,
        file_name,
        name=common[0],
        hosts=facts.hosts,
        uris=facts.uris,
        days=days,
        replace=True,
    )


def inspect(path: Path) -> list[CertificateFacts]:
    """Return the facts of the certificates of a PEM file, in its order. Raises InvalidConfig."""
    return [_facts(each) for each in _load(path)]


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = [
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        ]
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        hosts, uris = [], []
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        is_authority = basic.ca
    except x509.ExtensionNotFound:
        is_authority = False
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        hosts=tuple(hosts),
        uris=tuple(uris),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        is_authority=is_authority,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _load(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{path}: no certificate can be read: {error}") from error


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority that signs, of those in ca.pem, and its key."""
    _check_owner(folder)
    paths = CertificatePaths.of(folder, _AUTHORITY)
    if not paths.certificate.exists():
        raise InvalidConfig(f"{folder}: no authority; run `quorumlog tls init-ca {folder}` first")
    trusted = _load(paths.certificate)
    try:
        key = serialization.load_pem_private_key(paths.key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidConfig(f"{paths.key}: no key can be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidConfig(f"{paths.key}: not an ECDSA key")
    for each in trusted:
        if each.public_key() == key.public_key() and _is_signed_by(each, each):
            return each, key
    raise InvalidConfig(
        f"{paths.key}: not the key of {paths.certificate}; put the ca.key of that authority there."
        f" To change an authority, run `quorumlog tls rotate {folder} trust-both`"
    )


def _new_authority(
    name: x509.Name, days: int
) -> tuple[list[x509.Certificate], ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    return [builder.sign(key, hashes.SHA256())], key


def _check_owner(folder: Path) -> None:
    """Raise DirectoryUnusable if other users can write to a folder, its certificates or the keys of
    its authority: another user could have the key of the authority."""
    keys = [folder / f"{_AUTHORITY}.key", folder / _NEXT_KEY]
    for each in (folder, *keys, *sorted(folder.glob("*.pem"))):
        with suppress(FileNotFoundError):
            check_private(str(each))


def _check_has_begun(folder: Path) -> None:
    _check_owner(folder)
    path = CertificatePaths.of(folder, _AUTHORITY).certificate
    if len(_load(path)) < 2:
        raise InvalidConfig(
            f"{path}: trusts one authority; run `quorumlog tls rotate {folder} trust-both` first"
        )


def _signed_by_others(folder: Path) -> list[Path]:
    """Return the certificates of a folder that one of its authorities has signed, other than the
    one that signs now."""
    authority, _ = _authority(folder)
    path = CertificatePaths.of(folder, _AUTHORITY).certificate
    others = [each for each in _load(path) if each != authority]
    found = []
    for each in sorted(folder.glob("*.pem")):
        with suppress(InvalidConfig):  # a file without a certificate
            certificate = _load(each)[0]
            if each != path and any(_is_signed_by(certificate, other) for other in others):
                found.append(each)
    return found


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    if not 1 <= days <= AUTHORITY_DAYS:
        raise InvalidConfig(f"days: {days}; give 1..{AUTHORITY_DAYS}")
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidConfig(f"name: {name!r}; give 1..{NAME_MAX} printable characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not host.isascii() or not host.isprintable() or " " in host or ":" in host:
        raise InvalidConfig(f"host: {host!r}; give a DNS name or an IP address, without a port")
    return x509.DNSName(host)


def _write_pair(
    paths: CertificatePaths,
    certificates: Sequence[x509.Certificate],
    key: ec.EllipticCurvePrivateKey,
) -> None:
    """Write both files, each one replaced at once. A reader between the two sees a key and a
    certificate that do not match, and keeps its old ones."""
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        replace_file(paths.key, encoded, KEY_MODE)
        written = [each.public_bytes(serialization.Encoding.PEM) for each in certificates]
        replace_file(paths.certificate, b"".join(written), mode=0o644)
    except OSError as error:
        raise InvalidConfig(f"{paths.key.parent}: cannot write: {error.strerror}") from error
