"""A node's configuration: typed settings from flags, environment and file, validated once, frozen.

`NodeConfig` declares the settings of the node itself. Its sections are declared beside the code
that uses them. Values come from the file, the environment and flags, in the order of `..settings`.
Pure: the caller reads the file and the environment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..api.authentication.config import SecurityConfig, SecurityProtocol
from ..broker.config import ReplicationConfig, RequestConfig
from ..broker.groups.config import GroupConfig
from ..broker.transactions.config import TransactionConfig
from ..errors import InvalidConfig
from ..frontends.kafka.config import KafkaConfig
from ..metadata.config import ControllerConfig
from ..runtime.sockets import is_loopback
from ..settings import (
    Resolved,
    Setting,
    SettingSource,
    check_values,
    declared,
    environment_source,
    file_source,
    from_values,
    resolve,
    setting,
    variable_of,
)
from ..storage.config import DirectoryConfig
from .addresses import (
    ANY_HOST,
    VoterEntry,
    check_kafka_addresses,
    check_voters,
    parse_address,
    parse_voter,
    split_listener,
)

ROLES: Final = ("controller", "broker")
LOG_FORMATS: Final = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All settings of a node; equal files give equal configurations."""

    data_dir: str = setting(
        "data.dir",
        None,
        "The node's data directory, formatted before its first start.",
        field_name="log.dirs",
    )
    node_id: int = setting(
        "node.id", 1, "Id of this node, unique in the cluster.", low=0, high=2**31 - 1
    )
    roles: tuple[str, ...] = setting(
        "node.roles",
        ROLES,
        "Roles of the node: controller, broker, or both. A node with the role broker alone follows "
        "the quorum of controller.bootstrap as an observer.",
        field_name="process.roles",
    )
    rack: str = setting(
        "node.rack", "", "Failure zone of the node; empty: none.", field_name="broker.rack"
    )
    cluster_id: str = setting(
        "cluster.id",
        "",
        "Cluster id that the data directory must have; empty: any.",
    )
    grpc_listener: str = setting(
        "listeners.grpc",
        "127.0.0.1:9094",
        "host:port for gRPC clients; port 0 picks a free port.",
        field_name="listeners",
    )
    controller_listener: str = setting(
        "listeners.controller",
        "127.0.0.1:9093",
        "host:port for the other nodes of the cluster; port 0 picks a free port.",
        field_name="listeners",
    )
    raft_listener: str = setting(
        "listeners.raft",
        "",
        "host:port for entries and snapshots of the metadata log from other controllers. They "
        "connect to the host of this node's controller address and request the port there. Empty: "
        "a free port on the host of listeners.controller; set it if a firewall needs a fixed port.",
    )
    replica_listener: str = setting(
        "listeners.replica",
        "",
        "host:port for followers of the partitions that this broker leads. They connect to the "
        "host of this node's controller address and request the port there. Empty: a free port on "
        "the host of listeners.controller; set it if a firewall needs a fixed port.",
    )
    http_listener: str = setting(
        "listeners.http",
        "",
        "host:port for metrics and health checks over HTTP; port 0 picks a free port. Beyond "
        "loopback it uses TLS with the node's certificate, and callers authenticate. Empty: none, "
        "but `quorumlog dev` and `quorumlog cluster up` open one.",
    )
    kafka_listeners: tuple[str, ...] = setting(
        "listeners.kafka",
        (),
        "host:port, or NAME://host:port for several, for Kafka clients. The default name is "
        "PLAINTEXT; port 0 picks a free port. Empty: none, but `quorumlog dev` and "
        "`quorumlog cluster up` open one.",
        field_name="listeners",
    )
    advertised_grpc: str = setting(
        "advertised.grpc",
        "",
        "host:port advertised to gRPC clients; empty: the listener's address.",
        field_name="advertised.listeners",
    )
    advertised_controller: str = setting(
        "advertised.controller",
        "",
        "host:port advertised to the other nodes; empty: the one in controller.voters, or else the "
        "listener's address.",
        field_name="advertised.listeners",
    )
    advertised_kafka: tuple[str, ...] = setting(
        "advertised.kafka",
        (),
        "host:port, or NAME://host:port for several, advertised to Kafka clients of the listener "
        "with that name. Empty: the listener's address. If it listens on all interfaces, the host "
        "by which the client reached the broker that it asked.",
        field_name="advertised.listeners",
    )
    allow_insecure_listeners: bool = setting(
        "allow.insecure.listeners",
        False,
        "Permit listeners for clients and nodes without encryption, and an HTTP listener without "
        "authentication, on addresses beyond loopback. Anyone on the network can then read the "
        "traffic, and act as a node.",
    )
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    controller_voters: tuple[str, ...] = setting(
        "controller.voters",
        (),
        'Initial voters of the quorum, as "id@host:port:directory id"; empty: this node alone. '
        "After formatting, commands change the voters; this list then only has addresses for "
        "contacting the quorum.",
        field_name="controller.quorum.voters",
    )
    controller_bootstrap: tuple[str, ...] = setting(
        "controller.bootstrap",
        (),
        "host:port of controllers that a node contacts to find the quorum's leader.",
        field_name="controller.quorum.bootstrap.servers",
    )
    election_timeout_ms: int = setting(
        "controller.election.timeout.ms",
        1_000,
        "A voter without a heartbeat of the leader for one to two times this long starts an "
        "election: shorter replaces a failed leader sooner, and also a slow one.",
        unit="ms",
        low=50,
        high=600_000,
        field_name="controller.quorum.election.timeout.ms",
    )
    heartbeat_ms: int = setting(
        "controller.heartbeat.ms",
        100,
        "Interval of the leader's heartbeats; at most half of the election timeout.",
        unit="ms",
        low=10,
        high=300_000,
    )
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    requests: RequestConfig = field(default_factory=RequestConfig)
    storage: DirectoryConfig = field(default_factory=DirectoryConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    metric_topics_max: int = setting(
        "metrics.topics.max",
        0,
        "Number of topics, the first by name, with metrics of end offsets and sizes. Each topic "
        "adds two time series a node, and a lookup of each of its partitions. 0: none.",
        unit="topics",
        low=0,
        high=10_000,
    )
    log_format: str = setting(
        "log.format",
        "text",
        "Format of log lines on stderr: text, or json with every field by name. The environment "
        "variable QUORUMLOG_LOG sets the level.",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "controlled.shutdown.timeout.ms",
        10_000,
        "Maximum wait of a stopping broker until others lead its partitions and the metadata is "
        "replicated; without a controller it waits two seconds. 0: no controlled shutdown.",
        unit="ms",
        low=0,
        high=3_600_000,
    )
    shutdown_grace_ms: int = setting(
        "shutdown.grace.ms",
        2_000,
        "Time for calls in progress to end when the node stops.",
        unit="ms",
        low=0,
        high=600_000,
    )

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise InvalidConfig naming the first invalid setting and its allowed values."""
        check_values(self)
        if not self.data_dir:
            raise InvalidConfig("data.dir: empty; give the node's data directory")
        if self.http_listener:
            parse_address("listeners.http", self.http_listener)
        if self.log_format not in LOG_FORMATS:
            raise InvalidConfig(f"log.format: {self.log_format!r}; give {' or '.join(LOG_FORMATS)}")
        self._check_roles()
        self._check_addresses()
        check_kafka_addresses(self.kafka_listeners, self.advertised_kafka)
        self.security.check(self.kafka_names)
        self._check_voters()
        self.groups.check()
        self._check_exposure()

    def _check_roles(self) -> None:
        if not self.roles or set(self.roles) - set(ROLES) or len(set(self.roles)) < len(self.roles):
            raise InvalidConfig(
                f"node.roles: {list(self.roles)}; give controller, broker, or both, each once"
            )
        if self.is_controller:
            return
        if self.own_entry is not None:
            raise InvalidConfig(
                f"controller.voters: node {self.node_id} is a voter, and its node.roles lacks"
                " controller; add the role, or remove the node from the voters"
            )
        if self.is_alone:
            raise InvalidConfig(
                "node.roles: a node without the role controller needs controller.bootstrap; give"
                " host:port of controllers"
            )

    def _check_addresses(self) -> None:
        for name, address in (
            ("listeners.grpc", self.grpc_listener),
            ("listeners.controller", self.controller_listener),
        ):
            parse_address(name, address)
        for name, address in (
            ("listeners.raft", self.raft_listener),
            ("listeners.replica", self.replica_listener),
            ("advertised.grpc", self.advertised_grpc),
            ("advertised.controller", self.advertised_controller),
        ):
            if address:
                parse_address(name, address)
        for address in self.controller_bootstrap:
            parse_address("controller.bootstrap", address)
        host, _ = parse_address("listeners.grpc", self.grpc_listener)
        if host in ANY_HOST and self.is_broker and not self.advertised_grpc:
            raise InvalidConfig(
                f"listeners.grpc: it is on every interface ({host}); give the host:port for clients"
                " in advertised.grpc"
            )

    def _check_voters(self) -> None:
        check_voters(self.voters)
        if not self.is_alone and not self.quorum_address:
            host, port = parse_address("listeners.controller", self.controller_listener)
            where = "on every interface" if host in ANY_HOST else f"on port {port}"
            raise InvalidConfig(
                f"listeners.controller: it is {where}; give the host:port for the other controllers"
                " in advertised.controller"
            )
        if self.heartbeat_ms * 2 > self.election_timeout_ms:
            raise InvalidConfig(
                f"controller.heartbeat.ms: {self.heartbeat_ms} is more than half of"
                f" controller.election.timeout.ms={self.election_timeout_ms}; give at most"
                f" {self.election_timeout_ms // 2}"
            )

    def _check_exposure(self) -> None:
        """Raise InvalidConfig for a client listener beyond loopback without encryption."""
        security = self.security
        if self.is_http_secured and not (security.certificate_file and security.key_file):
            raise InvalidConfig(
                f"listeners.http: {self.http_listener} is beyond loopback, and needs TLS; give"
                " ssl.certificate.file and ssl.key.file, or allow.insecure.listeners=true"
            )
        if self.allow_insecure_listeners:
            return
        self._check_internal_exposure()
        if not self.is_broker:
            return
        listeners = [
            (
                f"listeners.grpc: gRPC clients use {security.grpc_protocol}",
                "grpc.security.protocol=SASL_SSL",
                SecurityProtocol(security.grpc_protocol),
                self.grpc_listener,
            )
        ]
        for text in self.kafka_listeners:
            name, address = split_listener(text)
            protocol = security.protocol_of(name)
            what = f"listeners.kafka: the listener {name} uses {protocol.value}"
            listeners.append((what, f"SASL_SSL://{address}", protocol, address))
        for what, remedy, protocol, address in listeners:
            host, _ = parse_address("listeners", address)
            if not protocol.is_encrypted and not is_loopback(host):
                raise InvalidConfig(
                    f"{what} on {address}, beyond loopback; give {remedy} with a certificate, or"
                    " allow.insecure.listeners=true"
                )

    def _check_internal_exposure(self) -> None:
        if not self.security.is_internal_plaintext:
            return
        for name, address in (
            ("listeners.controller", self.controller_listener),
            ("listeners.raft", self.raft_listener),
            ("listeners.replica", self.replica_listener),
        ):
            if address and not is_loopback(parse_address(name, address)[0]):
                raise InvalidConfig(
                    f"{name}: nodes use plaintext on {address}, beyond loopback; set"
                    " internal.security=required with a certificate for each node, or"
                    " allow.insecure.listeners=true on a network of the nodes alone"
                )

    @property
    def is_http_secured(self) -> bool:
        """True if the HTTP listener uses TLS and authenticates its callers."""
        if self.allow_insecure_listeners or not self.http_listener:
            return False
        return not is_loopback(parse_address("listeners.http", self.http_listener)[0])

    @property
    def kafka_names(self) -> tuple[str, ...]:
        """The names of the Kafka listeners."""
        return tuple(split_listener(text)[0] for text in self.kafka_listeners)

    @property
    def voters(self) -> tuple[VoterEntry, ...]:
        """The voters of `controller.voters`."""
        return tuple(parse_voter(text) for text in self.controller_voters)

    @property
    def own_entry(self) -> VoterEntry | None:
        """This node's entry in `controller.voters`."""
        return next((voter for voter in self.voters if voter.node_id == self.node_id), None)

    @property
    def is_alone(self) -> bool:
        """True if the configuration names no other node of the quorum."""
        others = [voter for voter in self.voters if voter.node_id != self.node_id]
        return not others and not self.controller_bootstrap

    @property
    def quorum_address(self) -> str:
        """The address for the other nodes; "" if only the open listener has it: it picks its port,
        or is on every interface."""
        if self.advertised_controller:
            return self.advertised_controller
        if (entry := self.own_entry) is not None:
            return entry.address
        host, port = parse_address("listeners.controller", self.controller_listener)
        return "" if host in ANY_HOST or port == 0 else self.controller_listener

    @property
    def stream_listener(self) -> str:
        """The address for streams of the other controllers; port 0 picks a free port."""
        host, _ = parse_address("listeners.controller", self.controller_listener)
        return self.raft_listener or f"{host}:0"

    @property
    def follower_listener(self) -> str:
        """The address for streams of followers; port 0 picks a free port."""
        host, _ = parse_address("listeners.controller", self.controller_listener)
        return self.replica_listener or f"{host}:0"

    @property
    def quorum_bootstrap(self) -> tuple[str, ...]:
        """Other nodes of the quorum that can be asked for the leader: voters first, each address
        once."""
        others = [voter.address for voter in self.voters if voter.node_id != self.node_id]
        return tuple(dict.fromkeys((*others, *self.controller_bootstrap)))

    @property
    def is_controller(self) -> bool:
        """True if the node has the role controller and may be a voter."""
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        """True if the node has the role broker and hosts partitions."""
        return "broker" in self.roles


def settings() -> tuple[Setting, ...]:
    """Return the settings of a node in the order of their page."""
    return tuple(row for row, _ in declared(NodeConfig).values())


CLIENT_KEYS: Final = ("client", "context", "current-context")
"""The command line's part of a shared file, ignored by nodes."""


def parse_toml(text: str, *, source: str) -> NodeConfig:
    """Parse a node's configuration; raises InvalidConfig naming `source`, the key and the
    remedy."""
    return node_config(resolve_node([toml_source(text, path=source)]))


def toml_source(text: str, *, path: str) -> SettingSource:
    """Parse a node's file without the keys of the command line; raises InvalidConfig."""
    return file_source(settings(), text, path=path, others=CLIENT_KEYS)


def node_environment(environment: Mapping[str, str]) -> SettingSource:
    """Parse a node's environment variables; raises InvalidConfig."""
    return environment_source(settings(), environment)


def resolve_node(sources: Sequence[SettingSource]) -> Resolved:
    """Return every setting from the first source that has it, else its default."""
    return resolve(settings(), sources)


def node_config(found: Resolved) -> NodeConfig:
    """Build the configuration; raises InvalidConfig naming the source of an invalid value."""
    for row in settings():
        if row.name not in found.values:
            raise InvalidConfig(
                f"{row.name}: missing; give it in the file of --config, as"
                f" --set {row.name}=..., or as {variable_of(row.name)}"
            )
    try:
        return from_values(NodeConfig, found.values)
    except InvalidConfig as error:
        raise _placed(error, found, error.message.split()[0].rstrip(":")) from None


def placed_address(found: Resolved, name: str) -> tuple[str, int]:
    """Split the "host:port" of a setting; raises InvalidConfig naming its source."""
    try:
        return parse_address(name, found[name])
    except InvalidConfig as error:
        raise _placed(error, found, name) from None


def _placed(error: InvalidConfig, found: Resolved, name: str) -> InvalidConfig:
    """Return the error with the source of the setting's value."""
    origin = found.origins.get(name)
    if origin is None or not origin.place:
        return error
    return InvalidConfig(f"{origin.place}: {error.message}")
