"""The security of `quorumlog dev --secure`: an authority, a certificate, an administrator, and
files with which clients connect.

They are in a folder beside the data directory, which is created at the first start and kept.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InvalidConfig
from .certificates import KEY_MODE, create_authority, issue, replace_file
from .main import ADMINISTRATOR

FOLDER_SUFFIX: Final = "-security"
CLIENT_PROFILE: Final = "client.toml"
KCAT_PROFILE: Final = "kcat.conf"
JAVA_PROFILE: Final = "kafka.properties"
_PASSWORD_FILE: Final = "admin.password"
_NODE: Final = "node"
_PASSWORD_BYTES: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityFolder:
    """The files of one cluster's security."""

    path: Path

    @property
    def password(self) -> str:
        """The administrator's password."""
        try:
            return (self.path / _PASSWORD_FILE).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidConfig(f"{self.path / _PASSWORD_FILE}: {error.strerror}") from error

    @property
    def client_profile(self) -> Path:
        """The configuration file of the command line."""
        return self.path / CLIENT_PROFILE

    def settings(self, node: str = _NODE) -> dict[str, object]:
        """Return the security settings of a node."""
        return {
            "grpc.security.protocol": "SASL_SSL",
            "ssl.certificate.file": str(self.path / f"{node}.pem"),
            "ssl.key.file": str(self.path / f"{node}.key"),
            "ssl.ca.file": str(self.path / "ca.pem"),
            "super.users": (f"User:{ADMINISTRATOR}",),
        }

    def write_profiles(self, *, grpc: str, kafka: str | None) -> None:
        """Write the files with which the administrator connects."""
        ca, password = self.path / "ca.pem", self.path / _PASSWORD_FILE
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
        _write(
            self.path / KCAT_PROFILE,
            f"bootstrap.servers={kafka}\n"
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username={ADMINISTRATOR}\n"
            f"sasl.password={self.password}\n"
            f"ssl.ca.location={ca}\n",
        )
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


def security_folder(data_dir: str, hosts: Sequence[str]) -> SecurityFolder:
    """Return the folder of a data directory, complete with an authority, a node's certificate for
    these hosts and the administrator's password. Existing files are kept. Raises InvalidConfig."""
    folder = SecurityFolder(path=Path(f"{data_dir.rstrip('/')}{FOLDER_SUFFIX}").absolute())
    if not folder.path.exists():
        folder.path.mkdir(parents=True, mode=0o700)
    if not (folder.path / "ca.pem").exists():
        create_authority(folder.path, name="quorumlog development authority")
    if not (folder.path / f"{_NODE}.pem").exists():
        names = dict.fromkeys((*hosts, "localhost", "127.0.0.1", "::1"))
        issue(folder.path, _NODE, name="quorumlog", hosts=tuple(names))
    if not (folder.path / _PASSWORD_FILE).exists():
        _write(folder.path / _PASSWORD_FILE, secrets.token_urlsafe(_PASSWORD_BYTES) + "\n")
    return folder


def _write(path: Path, text: str) -> None:
    """Replace a file that only its owner can read."""
    try:
        replace_file(path, text.encode(), KEY_MODE)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror}") from error
