"""The settings of a console, all fixed at its start."""

from dataclasses import dataclass

from ..clients.credentials import TLS

HOST_DEFAULT = "127.0.0.1"
PORT_DEFAULT = 9096
OAUTHBEARER = "OAUTHBEARER"  # the mechanism of tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """The settings of one console."""

    bootstrap: str  # gRPC addresses of brokers, separated by commas
    tls: TLS | None = None  # of the connections to brokers
    needs_credentials: bool = False  # brokers require a user and a password
    mechanism: str = "SCRAM-SHA-256"  # of the login at the brokers, or "OAUTHBEARER"
    token: str = ""  # file:PATH or env:NAME of a token that every browser uses; "": none
    shares_certificate: bool = False  # every browser has the rights of the certificate in `tls`
    host: str = HOST_DEFAULT
    port: int = PORT_DEFAULT  # 0: a free one
    certificate: str = ""  # PEM file of the console's own TLS; "": none
    key: str = ""  # PEM file with its key
    allowed_hosts: tuple[str, ...] = ()  # names of the console besides its own address

    @property
    def scheme(self) -> str:
        """The scheme of the console's URLs."""
        return "https" if self.certificate else "http"
