"""Settings of encryption, authentication and authorization."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ...errors import InvalidConfig
from ...metadata.authorization import AuthorizerConfig
from ...runtime.internal_network import InternalSecurity
from ...settings import setting
from .certificate_principals import parse_rules

if TYPE_CHECKING:
    from ...runtime.tls import TlsFiles

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
"""The supported SASL mechanisms."""

MESSAGE_BYTES_MAX: Final = 32 << 10
"""The longest message of an exchange, which may hold a token. A request with it needs no memory of
its own before the authentication: it fits into the shared read buffer."""

ENCRYPTED_ONLY: Final = frozenset({"PLAIN", "OAUTHBEARER"})
"""Mechanisms that send the secret itself, and are therefore offered only over TLS."""


class SecurityProtocol(Enum):
    """Encryption and authentication of a listener; Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """True if connections use TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Encryption, authentication and authorization of a node's listeners."""

    listener_protocols: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        (),
        "NAME:PROTOCOL for each Kafka listener, with the protocol PLAINTEXT, SSL, SASL_PLAINTEXT "
        "or SASL_SSL. A listener without an entry has the protocol of its name, and any other name "
        "means PLAINTEXT.",
    )
    grpc_protocol: str = setting(
        "grpc.security.protocol",
        "PLAINTEXT",
        "Encryption and authentication of gRPC clients: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL. A client authenticates with a password, with a token (OAUTHBEARER), or with a "
        "certificate if ssl.client.auth is required.",
        choices=tuple(SecurityProtocol.__members__),
    )
    accepts_plaintext_calls: bool = setting(
        "grpc.plaintext.accepted",
        False,
        "Accept gRPC clients without TLS and credentials, too, on the same port and as "
        "User:ANONYMOUS, while the clients of a running cluster change to TLS. Until then the "
        "address of each gRPC client is 127.0.0.1.",
    )
    certificate_file: str = setting(
        "ssl.certificate.file",
        "",
        "PEM file with the node's certificate, followed by intermediate certificates. A changed "
        "file is loaded within seconds; open connections stay.",
        field_name="ssl.keystore.certificate.chain",
        changes="at once",
    )
    key_file: str = setting(
        "ssl.key.file",
        "",
        "PEM file with the private key of the certificate, readable by the node's user alone.",
        field_name="ssl.keystore.key",
        changes="at once",
    )
    key_password: str = setting(
        "ssl.key.password",
        "",
        "The key's password as a reference: file:PATH or env:NAME. Empty: the key is not "
        "encrypted.",
    )
    ca_file: str = setting(
        "ssl.ca.file",
        "",
        "PEM file with the certificates of the authorities that sign clients' certificates.",
        field_name="ssl.truststore.certificates",
        changes="at once",
    )
    client_auth: str = setting(
        "ssl.client.auth",
        "none",
        "Whether clients present a certificate: none, requested, or required.",
        choices=("none", "requested", "required"),
    )
    principal_rules: str = setting(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Rules that make a user's name of a certificate's distinguished name, as in Apache Kafka: "
        "RULE:pattern/replacement/, with L or U behind it for lower or upper case, or DEFAULT for "
        "the whole name; separated by commas. The first match decides.",
    )
    mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "SASL mechanisms of listeners with SASL. PLAIN, checked against the SCRAM credentials, and "
        "OAUTHBEARER are offered only over TLS.",
    )
    reauthentication_ms: int = setting(
        "connections.max.reauth.ms",
        0,
        "Time after which a client must authenticate again, on the same connection. A client that "
        "does not is disconnected. 0: no limit, except the expiry of a token.",
        unit="ms",
        low=0,
        high=30 * 24 * 3_600_000,
    )
    failure_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        100,
        "Delay of the response to a failed authentication; longer after further failures from the "
        "same address.",
        unit="ms",
        low=0,
        high=10_000,
    )
    jwks_url: str = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        "",
        "The keys that sign tokens, as a JSON Web Key Set: https:// or file:// and its place.",
    )
    jwks_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "Time between two fetches of the keys. A token with an unknown key causes one sooner.",
        unit="ms",
        low=1_000,
        high=7 * 24 * 3_600_000,
    )
    jwks_ca_file: str = setting(
        "sasl.oauthbearer.jwks.ca.file",
        "",
        "PEM file with the authorities that sign the certificate of the keys' https endpoint. "
        "Empty: those of the system.",
    )
    token_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer",
        "",
        "The issuer that tokens must have. Required for OAUTHBEARER.",
    )
    token_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        (),
        "Audiences of which a token must have one. Required for OAUTHBEARER.",
    )
    token_skew_s: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "Permitted difference between the clocks of the issuer and of this node.",
        unit="s",
        low=0,
        high=600,
    )
    token_user_claim: str = setting(
        "sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that has the user's name."
    )
    authorizer: str = setting(
        "authorizer",
        "",
        "none: every client may do everything; acl: access control lists decide. Empty: none if no "
        "listener authenticates clients, otherwise acl.",
        choices=("", "none", "acl"),
        field_name="authorizer.class.name",
    )
    super_users: tuple[str, ...] = setting(
        "super.users",
        (),
        'Principals that may do everything, such as "User:admin".',
    )
    allow_everyone: bool = setting(
        "allow.everyone.if.no.acl.found",
        False,
        "Permit actions on a resource that no ACL selects.",
    )

    internal_security: str = setting(
        "internal.security",
        "plaintext",
        "TLS between the nodes of the cluster, with a certificate on both sides: plaintext, or "
        "required. A running cluster changes with two steps in between, each at one node after "
        "another: accept-both (opens connections without TLS), then prefer-tls (opens them with "
        "TLS). Only required keeps strangers out.",
        choices=tuple(each.value for each in InternalSecurity),
    )
    internal_certificate_file: str = setting(
        "internal.ssl.certificate.file",
        "",
        "PEM file with the certificate that this node presents to the others; it names the "
        "cluster, the node id and the roles. Empty: that of ssl.certificate.file.",
        changes="at once",
    )
    internal_key_file: str = setting(
        "internal.ssl.key.file",
        "",
        "PEM file with the private key of that certificate. Empty: that of ssl.key.file.",
        changes="at once",
    )
    internal_key_password: str = setting(
        "internal.ssl.key.password",
        "",
        "The key's password as a reference: file:PATH or env:NAME. Empty: that of "
        "ssl.key.password, with its key.",
    )
    internal_ca_file: str = setting(
        "internal.ssl.ca.file",
        "",
        "PEM file with the certificates of the authorities that sign nodes' certificates. Empty: "
        "that of ssl.ca.file.",
        changes="at once",
    )
    internal_allowed_file: str = setting(
        "internal.allowed.nodes.file",
        "",
        "File with the ids of the nodes that may connect, one a line; a changed file is loaded "
        "within seconds and ends the connections of a removed node. Empty: every node with a "
        "certificate of the cluster.",
        changes="at once",
    )
    audit_file: str = setting(
        "audit.log.file",
        "",
        "File of the audit log: authentications, denials and changes with principal and address, "
        "one JSON object a line. Empty: none.",
    )
    audit_bytes_max: int = setting(
        "audit.log.bytes.max",
        64 << 20,
        "Size at which the audit log begins a new file.",
        unit="bytes",
        low=1 << 10,
        high=1 << 40,
    )
    audit_files_max: int = setting(
        "audit.log.files.max",
        10,
        "Number of files of the audit log that are kept.",
        unit="files",
        low=2,
        high=10_000,
    )

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the protocol of a Kafka listener's name."""
        mapped = dict(map(_split_entry, self.listener_protocols)).get(listener, listener)
        return SecurityProtocol.__members__.get(mapped, SecurityProtocol.PLAINTEXT)

    def offered(self, protocol: SecurityProtocol) -> tuple[str, ...]:
        """Return the mechanisms that a listener of this protocol offers."""
        if not protocol.has_sasl:
            return ()
        if protocol.is_encrypted:
            return self.mechanisms
        return tuple(each for each in self.mechanisms if each not in ENCRYPTED_ONLY)

    def authorizer_config(self, listeners: Iterable[str]) -> AuthorizerConfig | None:
        """Return the settings of the authorizer, or None if every action is allowed. `listeners`
        are the names of the Kafka listeners."""
        kind = self.authorizer or ("acl" if self._authenticates(listeners) else "none")
        if kind == "none":
            return None
        return AuthorizerConfig(
            super_users=frozenset(self.super_users),
            allow_everyone_if_no_acl_found=self.allow_everyone,
        )

    def check(self, listeners: Collection[str]) -> None:
        """Raise InvalidConfig for the first setting that does not fit the others. `listeners` are
        the names of the Kafka listeners."""
        for entry in self.listener_protocols:
            _, protocol = _split_entry(entry)
            if protocol not in SecurityProtocol.__members__:
                raise InvalidConfig(
                    f"listener.security.protocol.map: {protocol!r} in {entry!r}; give"
                    f" {', '.join(SecurityProtocol.__members__)}"
                )
        protocols = self._protocols(listeners)
        encrypted = [name for name, protocol in protocols.items() if protocol.is_encrypted]
        if encrypted and not (self.certificate_file and self.key_file):
            raise InvalidConfig(
                f"ssl.certificate.file: empty, and the listener {encrypted[0]} uses TLS; give it"
                " and ssl.key.file"
            )
        if self.client_auth != "none" and not self.ca_file:
            raise InvalidConfig(
                f"ssl.ca.file: empty, and ssl.client.auth is {self.client_auth}; give the"
                " authorities of the clients' certificates"
            )
        self._check_internal()
        if self.accepts_plaintext_calls and not SecurityProtocol(self.grpc_protocol).is_encrypted:
            raise InvalidConfig(
                "grpc.plaintext.accepted: it needs a grpc.security.protocol with TLS, and that is"
                f" {self.grpc_protocol}"
            )
        self._check_mechanisms(protocols)
        parse_rules(self.principal_rules)
        for principal in self.super_users:
            kind, _, name = principal.partition(":")
            if kind != "User" or not name:
                raise InvalidConfig(f"super.users: {principal!r}; give User:NAME")
        if self.authorizer == "none" and self._authenticates(listeners):
            raise InvalidConfig(
                "authorizer: none, and a listener authenticates clients; leave it empty, or set"
                " allow.everyone.if.no.acl.found=true to permit what no ACL denies"
            )

    def internal_files(self) -> "TlsFiles":
        """Return the files for the traffic between nodes."""
        from ...runtime.tls import TlsFiles  # ssl is needed with TLS only

        has_own = bool(self.internal_certificate_file)
        return TlsFiles(
            certificate=self.internal_certificate_file if has_own else self.certificate_file,
            key=self.internal_key_file if has_own else self.key_file,
            key_password=self.internal_key_password if has_own else self.key_password,
            ca=self.internal_ca_file or self.ca_file,
            client_auth="required",
        )

    def _check_internal(self) -> None:
        if bool(self.internal_certificate_file) != bool(self.internal_key_file):
            raise InvalidConfig(
                "internal.ssl.certificate.file and internal.ssl.key.file: one of them is empty;"
                " give both, or none to use ssl.certificate.file and ssl.key.file"
            )
        if self.is_internal_plaintext:
            if self.internal_allowed_file:
                raise InvalidConfig(
                    "internal.allowed.nodes.file: nodes have no certificates, since"
                    " internal.security is plaintext; set that to required"
                )
            return
        files = self.internal_files()
        for name, value in (("certificate", files.certificate), ("ca", files.ca)):
            if not value:
                raise InvalidConfig(
                    f"internal.ssl.{name}.file: empty, and internal.security is"
                    f" {self.internal_security}; give it, or ssl.{name}.file"
                )

    def _check_mechanisms(self, protocols: dict[str, SecurityProtocol]) -> None:
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                raise InvalidConfig(
                    f"sasl.enabled.mechanisms: {mechanism!r}; give {', '.join(MECHANISMS)}"
                )
        for name, protocol in protocols.items():
            if protocol.has_sasl and not self.offered(protocol):
                raise InvalidConfig(
                    f"sasl.enabled.mechanisms: {', '.join(self.mechanisms) or 'none'}, of which"
                    f" the listener {name} without TLS offers none; add SCRAM-SHA-256"
                )
        if "OAUTHBEARER" not in self.mechanisms:
            return
        for name, value in (
            ("sasl.oauthbearer.jwks.endpoint.url", self.jwks_url),
            ("sasl.oauthbearer.expected.issuer", self.token_issuer),
            ("sasl.oauthbearer.expected.audience", self.token_audience),
        ):
            if not value:
                raise InvalidConfig(f"{name}: empty, and OAUTHBEARER is enabled; give it")
        if not self.jwks_url.startswith(("https://", "file://")):
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.url: {self.jwks_url!r}; give https:// or file://"
            )

    @property
    def is_internal_plaintext(self) -> bool:
        """True if the traffic between nodes has neither encryption nor identities."""
        return self.internal_security == InternalSecurity.PLAINTEXT.value

    def is_plaintext(self, listeners: Iterable[str]) -> bool:
        """Return True if no listener for clients encrypts or authenticates."""
        plain = SecurityProtocol.PLAINTEXT
        return all(each is plain for each in self._protocols(listeners).values())

    def _authenticates(self, listeners: Iterable[str]) -> bool:
        """Return True if a listener authenticates its clients."""
        return any(
            protocol.has_sasl or (protocol.is_encrypted and self.client_auth != "none")
            for protocol in self._protocols(listeners).values()
        )

    def _protocols(self, listeners: Iterable[str]) -> dict[str, SecurityProtocol]:
        """Return the protocols of the Kafka listeners and of gRPC, by name."""
        found = {name: self.protocol_of(name) for name in listeners}
        return {**found, "gRPC": SecurityProtocol(self.grpc_protocol)}


def _split_entry(entry: str) -> tuple[str, str]:
    """Split "NAME:PROTOCOL"; raise InvalidConfig."""
    name, colon, protocol = entry.partition(":")
    if not (name and colon and protocol):
        raise InvalidConfig(f"listener.security.protocol.map: {entry!r}; give NAME:PROTOCOL")
    return name, protocol
