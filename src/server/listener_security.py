"""The encryption and authentication of a node's listeners, from its configuration."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import unquote, urlsplit

from ..api.audit import AuditLog
from ..api.authentication.calls import AnonymousCalls, CallAuthentication
from ..api.authentication.certificate_principals import parse_rules
from ..api.authentication.config import SecurityConfig, SecurityProtocol
from ..api.authentication.failures import FailureDelays
from ..api.authentication.sasl import SaslServer
from ..api.authentication.sessions import SessionTokens
from ..api.authentication.tokens import KEY_SET_BYTES_MAX, TokenVerifier
from ..errors import InvalidConfig, QuorumlogError
from ..frontends.grpc.auth_service import OPEN_METHODS, AuthService
from ..frontends.kafka.authentication import ListenerSecurity
from ..ids import ClusterId
from ..metadata import MetadataImage
from ..runtime import PLAIN_CALLS, CallSecurity, Handler, Runtime
from ..runtime.client_bounds import ClientLines
from ..runtime.internal_network import InternalNetwork, InternalSecurity
from ..runtime.node_identity import NodeIdentities
from ..runtime.tls import TlsCredentials, TlsFiles, read_node_ids, stamp_of

RELOAD_S: Final = 1.0
"""Time between two looks at the certificate files."""

FETCH_TIMEOUT_S: Final = 10.0  # of the keys of tokens
HTTP_LISTENER: Final = "HTTP"  # in the audit log

_LOG: Final = logging.getLogger("quorumlog.security")


class NodeSecurity:
    """The certificates, mechanisms and failures of one node."""

    def __init__(
        self,
        runtime: Runtime,
        config: SecurityConfig,
        image: Callable[[], MetadataImage],
        audit: AuditLog | None,
    ) -> None:
        """Load the certificates that are configured. `image` returns the newest applied image.
        Raises InvalidConfig."""
        self._audit = audit
        self._runtime = runtime
        self._config = config
        self._rules = parse_rules(config.principal_rules)
        self._failures = FailureDelays(runtime.clock.now_ms, config.failure_delay_ms)
        self._sasl = SaslServer(
            tasks=runtime.tasks,
            nonces=runtime.entropy.stream("sasl"),
            secret=runtime.entropy.stream("sasl-unknown-users").token(32),
            image=image,
            tokens=self._tokens(),
        )
        self._image = image
        self._sessions = SessionTokens(
            runtime.entropy.stream("session-key").token(32), runtime.clock.now_ms, image
        )
        self._is_closed = asyncio.Event()
        self._loaded: list[TlsCredentials] = []  # follow their files
        self._tls = self._load(config.client_auth) if config.certificate_file else None
        self._identities: NodeIdentities | None = None  # until the network of nodes is open
        self._internal: InternalNetwork | None = None
        self._allowed_stamp: object = None

    def kafka_listener(self, name: str) -> ListenerSecurity:
        """Return the security of a Kafka listener."""
        config = self._config
        protocol = config.protocol_of(name)
        return ListenerSecurity(
            protocol=protocol,
            mechanisms=config.offered(protocol),
            tls=self._tls if protocol.is_encrypted else None,
            rules=self._rules,
            sasl=self._sasl if protocol.has_sasl else None,
            failures=self._failures,
            session_ms_max=config.reauthentication_ms,
            audit=self._audit,
        )

    def calls(self) -> CallSecurity:
        """Return the security of the gRPC listener."""
        config = self._config
        protocol = SecurityProtocol(config.grpc_protocol)
        if protocol is SecurityProtocol.PLAINTEXT:
            return PLAIN_CALLS
        return CallSecurity(
            tls=self._tls if protocol.is_encrypted else None,
            authenticator=self._authentication(protocol, OPEN_METHODS),
        )

    def http(self) -> tuple[TlsCredentials, CallAuthentication]:
        """Return the security of the HTTP listener: a certificate, and users with passwords and
        tokens. Raises InvalidConfig."""
        authentication = self._authentication(SecurityProtocol.SASL_SSL, frozenset())
        return self._load("none"), replace(
            authentication, passwords=self._sasl, listener=HTTP_LISTENER
        )

    def plaintext_calls(self) -> CallSecurity | None:
        """Return the security of gRPC clients without TLS, while the listener accepts both."""
        if not self._config.accepts_plaintext_calls:
            return None
        return replace(self.calls(), tls=None, authenticator=AnonymousCalls())

    def auth_handlers(self) -> Mapping[str, Handler]:
        """Return the service by which gRPC clients log in, if their listener has SASL."""
        mechanisms = self._config.offered(SecurityProtocol(self._config.grpc_protocol))
        if not mechanisms:
            return {}
        service = AuthService(
            self._sasl,
            self._sessions,
            self._failures,
            mechanisms=mechanisms,
            audit=self._audit,
            lines=ClientLines(self._runtime.clock.now_ms),
        )
        return service.handlers()

    @property
    def has_files(self) -> bool:
        """True if there are files to watch."""
        return self._tls is not None or not self._config.is_internal_plaintext

    async def watch(self) -> None:
        """Load files that have changed, until `close`."""
        while not self._is_closed.is_set():
            try:
                async with asyncio.timeout(RELOAD_S):
                    await self._is_closed.wait()
                return
            except TimeoutError:
                pass
            try:
                await self._runtime.tasks.offload("read", self._reload)
            except QuorumlogError as error:  # the lane is full: next time
                _LOG.info("security.reload_postponed error=%s", error)
            if self._internal is not None:
                self._internal.end_removed()

    def close(self) -> None:
        """End `watch`."""
        self._is_closed.set()

    def open_internal(
        self, cluster_id: ClusterId, node_id: int, roles: Sequence[str]
    ) -> InternalNetwork:
        """Return the network between nodes. Raises InvalidConfig."""
        config, runtime = self._config, self._runtime
        security = InternalSecurity(config.internal_security)
        identities = NodeIdentities(cluster_id, are_certified=security is InternalSecurity.REQUIRED)
        tls = None
        if security is not InternalSecurity.PLAINTEXT:
            tls = TlsCredentials(
                config.internal_files(),
                connects=True,
                check=partial(identities.check_own, node_id=node_id, roles=roles),
            )
            self._loaded.append(tls)
        if config.internal_allowed_file:
            identities.allowed = read_node_ids(config.internal_allowed_file)
            self._allowed_stamp = stamp_of(config.internal_allowed_file)
        self._identities = identities
        self._internal = InternalNetwork(
            runtime.network, runtime.tasks, identities, security=security, tls=tls
        )
        return self._internal

    def _load(self, client_auth: str) -> TlsCredentials:
        config = self._config
        loaded = TlsCredentials(
            TlsFiles(
                certificate=config.certificate_file,
                key=config.key_file,
                key_password=config.key_password,
                ca=config.ca_file,
                client_auth=client_auth,
            )
        )
        self._loaded.append(loaded)
        return loaded

    def _reload(self) -> None:
        """Load the files that have changed. Blocks on them."""
        for loaded in self._loaded:
            loaded.reload()
        path = self._config.internal_allowed_file
        if self._identities is None or not path or stamp_of(path) == self._allowed_stamp:
            return
        self._allowed_stamp = stamp_of(path)
        try:
            self._identities.allowed = read_node_ids(path)
        except InvalidConfig as error:
            _LOG.warning("security.allowed_nodes_kept error=%s", error)

    def _authentication(
        self, protocol: SecurityProtocol, open_paths: frozenset[str]
    ) -> CallAuthentication:
        return CallAuthentication(
            protocol=protocol,
            clock=self._runtime.clock,
            image=self._image,
            rules=self._rules,
            sessions=self._sessions,
            tokens=self._sasl.tokens,
            open_paths=open_paths,
            failures=self._failures,
            audit=self._audit,
        )

    def _tokens(self) -> TokenVerifier | None:
        if "OAUTHBEARER" not in self._config.mechanisms:
            return None
        return TokenVerifier(
            clock=self._runtime.clock,
            tasks=self._runtime.tasks,
            config=self._config,
            fetch=partial(_fetch, self._config.jwks_url, self._config.jwks_ca_file),
        )


def _fetch(url: str, ca_file: str) -> bytes:
    """Read a key set. Blocks; raises OSError."""
    from ..runtime.https import get, read_file  # needed with OAUTHBEARER only

    if url.startswith("file://"):
        return read_file(unquote(urlsplit(url).path), KEY_SET_BYTES_MAX)
    return get(url, ca_file=ca_file, bytes_max=KEY_SET_BYTES_MAX, timeout_s=FETCH_TIMEOUT_S)
