"""The security of `quorumlog dev --secure` and `quorumlog cluster up --secure`: an authority, a
certificate for each node, an administrator, and files with which clients connect.

They are in one folder, which is created at the first start and kept.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InvalidConfig
from ..runtime.node_identity import node_uri
from ..runtime.private_files import foreign_owner, is_writable_by_others, replace_file
from .certificates import (
    KEY_MODE,
    CertificatePaths,
    create_authority,
    inspect,
    issue,
)
from .main import ADMINISTRATOR

FOLDER_SUFFIX: Final = "-security"
CLIENT_PROFILE: Final = "client.toml"
KCAT_PROFILE: Final = "kcat.conf"
JAVA_PROFILE: Final = "kafka.properties"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
"""PLAIN, which is offered over TLS only, for clients with librdkafka before 2.6.1: their SCRAM
repeats its nonce."""
_PASSWORD_FILE: Final = "admin.password"
_PASSWORD_BYTES: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityFolder:
    """The files of one cluster's security."""

    path: Path

    @property
    def password_file(self) -> Path:
        """The file with the administrator's password."""
        return self.path / _PASSWORD_FILE

    @property
    def password(self) -> str:
        """The administrator's password."""
        try:
            return self.password_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidConfig(f"{self.password_file}: {error.strerror}") from error

    def kafka_config(
        self, bootstrap: str, user: str = ADMINISTRATOR, password: str | None = None
    ) -> dict[str, str]:
        """Return the configuration of a Kafka client in the names of librdkafka. `password` is
        needed for users other than the administrator."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.path / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self.password if password is None else password,
        }

    @property
    def client_profile(self) -> Path:
        """The configuration file of the command line."""
        return self.path / CLIENT_PROFILE

    def node_files(self, node_id: int) -> CertificatePaths:
        """Return the certificate of a node, with its key and the authority."""
        return CertificatePaths.of(self.path, f"node-{node_id}")

    def issue_node(
        self, cluster_id: str, node_id: int, roles: Sequence[str], hosts: Sequence[str]
    ) -> None:
        """Issue the certificate of a node for these hosts and this machine, unless it has one.
        Raises InvalidConfig."""
        uri = node_uri(cluster_id, node_id, roles)
        paths = self.node_files(node_id)
        if paths.certificate.exists() and uri in inspect(paths.certificate)[0].uris:
            return
        names = dict.fromkeys((*hosts, "localhost", "127.0.0.1", "::1"))
        name = f"node {node_id}"
        issue(self.path, f"node-{node_id}", name=name, hosts=tuple(names), uris=[uri], replace=True)

    def settings(self, node_id: int) -> dict[str, object]:
        """Return the security settings of a node."""
        files = self.node_files(node_id)
        return {
            "grpc.security.protocol": "SASL_SSL",
            "internal.security": "required",
            "sasl.enabled.mechanisms": MECHANISMS,
            "ssl.certificate.file": str(files.certificate),
            "ssl.key.file": str(files.key),
            "ssl.ca.file": str(files.authority),
            "super.users": (f"User:{ADMINISTRATOR}",),
        }

    def write_profiles(self, *, grpc: str, kafka: str | None) -> None:
        """Write the files with which the administrator connects."""
        ca, password = self.path / "ca.pem", self.password_file
        _write(
            self.client_profile,
            "[client]\n"
            f'bootstrap = "{grpc}"\n'
            'security_protocol = "SASL_SSL"\n'
            f'tls_ca_file = "{ca}"\n'
            f'sasl_user = "{ADMINISTRATOR}"\n'
            f'sasl_password = "file:{password}"\n',
        )
        if kafka is None:
            return
        rows = self.kafka_config(kafka).items()
        _write(self.path / KCAT_PROFILE, "".join(f"{name}={value}\n" for name, value in rows))
        _write(
            self.path / JAVA_PROFILE,
            f"bootstrap.servers={kafka}\n"
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-256\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{ADMINISTRATOR}" password="{self.password}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={ca}\n",
        )


def open_security_folder(path: Path) -> SecurityFolder:
    """Return a folder with an authority and the administrator's password, which are created if they
    are missing. Raises InvalidConfig."""
    folder = SecurityFolder(path=path.absolute())
    try:
        if not os.path.lexists(folder.path):
            folder.path.mkdir(parents=True, mode=0o700)
        status, link = folder.path.stat(), folder.path.lstat()
    except OSError as error:
        raise InvalidConfig(f"{folder.path}: cannot be used: {error.strerror}") from error
    if foreign_owner(link, status) is not None or is_writable_by_others(status):
        raise InvalidConfig(
            f"{folder.path}: other users can write to it, and could replace the authority; own"
            f" it, and run: chmod go-w {folder.path}"
        )
    if not (folder.path / "ca.pem").exists():
        create_authority(folder.path, name="quorumlog development authority")
    if not (folder.path / _PASSWORD_FILE).exists():
        _write(folder.path / _PASSWORD_FILE, secrets.token_urlsafe(_PASSWORD_BYTES) + "\n")
    return folder


def _write(path: Path, text: str) -> None:
    """Replace a file that only its owner can read."""
    try:
        replace_file(path, text.encode(), KEY_MODE)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror}") from error
