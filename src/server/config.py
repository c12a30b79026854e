"""A node's configuration: one typed table, filled from flags, environment and file, checked once,
frozen.

`NodeConfig` is the table: each field carries its name in the file, unit, range and what it trades.
Where values come from and in which order is `..settings`. Pure: reading the file and the
environment is the caller's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from ..errors import InvalidConfig
from ..settings import (
    Resolved,
    Setting,
    Source,
    check_value,
    environment_source,
    file_source,
    resolve,
    variable_of,
)
from .addresses import ANY_HOST, VoterEntry, check_voters, parse_address, parse_voter

ROLES = ("controller", "broker")
LOG_FORMATS = ("text", "json")
MIB = 1 << 20
CLIENT_TABLE = "client"  # of a file that the command line shares; nodes leave it alone


def _setting(
    name: str,
    default: Any,
    doc: str,
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    field_name: str = "",
) -> Any:
    about = {
        "name": name,
        "unit": unit,
        "low": low,
        "high": high,
        "choices": choices,
        "doc": doc,
        "field_name": field_name,
    }
    if default is None:
        return field(metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything a node is told; equal files give equal nodes."""

    data_dir: str = _setting(
        "data.dir",
        None,
        "The node's data directory, formatted before its first start.",
        field_name="log.dirs",
    )
    node_id: int = _setting(
        "node.id", 1, "Id of this node, unique in the cluster.", low=0, high=2**31 - 1
    )
    roles: tuple[str, ...] = _setting(
        "node.roles",
        ROLES,
        "What the node does: controller, broker, or both. A broker alone follows the quorum that "
        "controller.bootstrap names, without a vote.",
        field_name="process.roles",
    )
    rack: str = _setting(
        "node.rack", "", "Failure zone of the node; empty: none.", field_name="broker.rack"
    )
    cluster_id: str = _setting(
        "cluster.id",
        "",
        "Cluster the data directory must belong to; empty: whatever it was formatted for.",
    )
    grpc_listener: str = _setting(
        "listeners.grpc",
        "127.0.0.1:9094",
        "host:port clients use; port 0 picks a free one.",
        field_name="listeners",
    )
    controller_listener: str = _setting(
        "listeners.controller",
        "127.0.0.1:9093",
        "host:port for brokers and controllers; port 0 picks a free one.",
        field_name="listeners",
    )
    raft_listener: str = _setting(
        "listeners.raft",
        "",
        "host:port where the other members of the quorum send entries and snapshots; they reach it "
        "at the host of this node's controller address, and ask there for the port. Empty: a free "
        "port on the host of listeners.controller; give one where a firewall wants to know it.",
    )
    replica_listener: str = _setting(
        "listeners.replica",
        "",
        "host:port where other brokers read the partitions that this one leads; they reach it at "
        "the host of advertised.replica, else of advertised.grpc, and ask there for the port. "
        "Empty: a free port on the host of listeners.grpc; give one where a firewall wants to "
        "know it.",
    )
    http_listener: str = _setting(
        "listeners.http",
        "",
        "host:port for metrics and health over HTTP, open to whoever reaches it; port 0 picks a "
        "free one. Empty: none, except that `quorumlog dev` and `quorumlog cluster up` open one.",
    )
    kafka_listeners: tuple[str, ...] = _setting(
        "listeners.kafka",
        (),
        "host:port, or NAME://host:port for several, where clients of the Kafka protocol connect; "
        "without a name it is PLAINTEXT, port 0 picks a free one. Empty: none, except that "
        "`quorumlog dev` and `quorumlog cluster up` open one.",
        field_name="listeners",
    )
    advertised_kafka: tuple[str, ...] = _setting(
        "advertised.kafka",
        (),
        "host:port, or NAME://host:port for several, told to clients of the Kafka protocol instead "
        "of the listener of the name. Empty: the listener's port, at its host, or where it listens "
        "on all addresses at the host by which the client has reached the broker that it asks.",
        field_name="advertised.listeners",
    )
    auto_create_topics: str = _setting(
        "auto.create.topics.enable",
        "true",
        "Whether a client of the Kafka protocol that asks for an unknown topic by name creates it; "
        "equal on all brokers.",
        choices=("false", "true"),
        field_name="auto.create.topics.enable",
    )
    kafka_request_bytes_max: int = _setting(
        "kafka.request.bytes.max",
        100 * MIB,
        "The largest request of a Kafka client; a larger one ends its connection before memory is "
        "taken for it.",
        unit="bytes",
        low=1 << 10,
        high=1024 * MIB,
        field_name="socket.request.max.bytes",
    )
    kafka_connections_max: int = _setting(
        "kafka.connections.max",
        10_000,
        "Connections of Kafka clients at once; the next one is closed.",
        unit="connections",
        low=1,
        high=1_000_000,
        field_name="max.connections",
    )
    kafka_connections_idle_ms_max: int = _setting(
        "kafka.connections.idle.ms.max",
        600_000,
        "A connection of a Kafka client without a request for so long is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
        field_name="connections.max.idle.ms",
    )
    metric_topics_max: int = _setting(
        "metrics.topics.max",
        0,
        "Topics, the first by name, whose end offsets and sizes the metrics tell; each is two "
        "series a node, and a look at every partition of it. 0: none.",
        unit="topics",
        low=0,
        high=10_000,
    )
    log_format: str = _setting(
        "log.format",
        "text",
        "What a line of the journal on stderr is: text for people, or json with every field by "
        "name. QUORUMLOG_LOG says from which level on.",
    )
    advertised_grpc: str = _setting(
        "advertised.grpc",
        "",
        "host:port told to clients; empty: the listener's own address.",
        field_name="advertised.listeners",
    )
    advertised_replica: str = _setting(
        "advertised.replica",
        "",
        "host:port at which other brokers read from this one; empty: where clients do.",
        field_name="advertised.listeners",
    )
    advertised_controller: str = _setting(
        "advertised.controller",
        "",
        "host:port told to the other members of the quorum; empty: as controller.voters has it, "
        "else the listener's own address.",
        field_name="advertised.listeners",
    )
    controller_voters: tuple[str, ...] = _setting(
        "controller.voters",
        (),
        'The voters with which the quorum is formed, as "id@host:port:directory id"; empty: this '
        "node alone. Once it is formed, commands change it, and this list only says whom to ask.",
        field_name="controller.quorum.voters",
    )
    controller_bootstrap: tuple[str, ...] = _setting(
        "controller.bootstrap",
        (),
        "host:port of members of the quorum that a node without a vote asks who leads.",
        field_name="controller.quorum.bootstrap.servers",
    )
    election_timeout_ms: int = _setting(
        "controller.election.timeout.ms",
        1_000,
        "A voter that hears no leader for one to two times as long calls an election: shorter "
        "replaces a dead leader sooner, and a slow one too.",
        unit="ms",
        low=50,
        high=600_000,
        field_name="controller.quorum.election.timeout.ms",
    )
    heartbeat_ms: int = _setting(
        "controller.heartbeat.ms",
        100,
        "The leader says so often that it lives; at most half of the election time-out.",
        unit="ms",
        low=10,
        high=300_000,
    )
    session_timeout_ms: int = _setting(
        "broker.session.timeout.ms",
        3_000,
        "Silence after which the controller fences a broker; shorter finds failures sooner and "
        "takes a stall for one.",
        unit="ms",
        low=200,
        high=600_000,
    )
    replica_lag_time_max_ms: int = _setting(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up with its leader for so long leaves the in-sync "
        "replicas: shorter keeps writes from waiting for it, and takes a stall for a failure.",
        unit="ms",
        low=100,
        high=3_600_000,
    )
    lapsed_leader_accepts_acks_one: str = _setting(
        "lapsed.leader.accepts.acks.one",
        "false",
        "Whether a leader that hears from no controller for the session time-out takes records "
        "with acks 0 and 1: another may lead by then, and these are the ones that would be lost.",
        choices=("false", "true"),
    )
    replica_fetch_wait_max_ms: int = _setting(
        "replica.fetch.wait.max.ms",
        500,
        "How long a leader with no news keeps a follower's request; shorter costs an idle cluster "
        "more.",
        unit="ms",
        low=10,
        high=60_000,
    )
    replica_fetch_bytes_max: int = _setting(
        "replica.fetch.max.bytes",
        MIB,
        "Bytes of one partition in an answer to a follower; the first batch comes even if larger.",
        unit="bytes",
        low=1,
        high=64 * MIB,
    )
    replica_response_bytes_max: int = _setting(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "Bytes of an answer to a follower; the first batch comes even if larger.",
        unit="bytes",
        low=1,
        high=48 * MIB,
    )
    controlled_shutdown_timeout_ms: int = _setting(
        "controlled.shutdown.timeout.ms",
        10_000,
        "How long a broker that stops waits at most until others lead what it led and the cluster "
        "knows; without a controller it waits two seconds. 0: it does not ask.",
        unit="ms",
        low=0,
        high=3_600_000,
    )
    partitions_default: int = _setting(
        "num.partitions",
        1,
        "Partitions of a topic that is created without a number; equal on all controllers.",
        unit="partitions",
        low=1,
        high=10_000,
    )
    replication_factor_default: int = _setting(
        "default.replication.factor",
        1,
        "Replicas of a topic that is created without a number; equal on all controllers. More "
        "survive the loss of more brokers, and each costs its disk and network.",
        unit="replicas",
        low=1,
        high=1_000,
    )
    produce_inflight_max: int = _setting(
        "produce.inflight.requests.max",
        16,
        "Requests of one Produce stream under way at once; beyond it the stream is not read.",
        unit="requests",
        low=1,
        high=1_000,
    )
    produce_inflight_bytes_max: int = _setting(
        "produce.inflight.bytes.max",
        16 * MIB,
        "Bytes of batches of one Produce stream under way at once; more hides the disk's latency "
        "and holds them in memory. One larger request is taken alone.",
        unit="bytes",
        low=64 << 10,
        high=1024 * MIB,
    )
    produce_waits_max: int = _setting(
        "produce.waits.max",
        10_000,
        "Produce requests waiting for acknowledgement in one partition.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    fetch_waits_max: int = _setting(
        "fetch.waits.max",
        10_000,
        "Fetches waiting for new records on this node.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    fetch_bytes_max: int = _setting(
        "fetch.bytes.max",
        50 * MIB,
        "Upper bound of one fetch answer, and of what one fetch holds in memory: more saves round"
        " trips and costs memory a reader.",
        unit="bytes",
        low=64 << 10,
        high=60 * MIB,
        field_name="fetch.max.bytes",
    )
    subscribe_streams_max: int = _setting(
        "subscribe.streams.max",
        1_000,
        "Subscribe streams of this node at once; each may hold two answers in memory.",
        unit="streams",
        low=1,
        high=1_000_000,
    )
    subscribe_heartbeat_ms: int = _setting(
        "subscribe.heartbeat.ms",
        5_000,
        "An idle Subscribe stream says so this often, so that a silent cut is noticed.",
        unit="ms",
        low=100,
        high=600_000,
    )
    reserve_bytes: int = _setting(
        "storage.reserve.bytes",
        256 * MIB,
        "Free space of the disk below which producers are refused, at most 3 % of a small disk, so "
        "that reads, retention and deletions go on. 0: none, producers may fill the disk.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
    retention_check_interval_ms: int = _setting(
        "retention.check.interval.ms",
        60_000,
        "Every log is looked at this often, to drop old segments and to see what to compact.",
        unit="ms",
        low=10,
        high=24 * 3_600_000,
        field_name="log.retention.check.interval.ms",
    )
    clean_bytes_per_second: int = _setting(
        "clean.bytes.per.second",
        128 * MIB,
        "Bytes that compaction may read and write a second; more cleans sooner and takes the disk "
        "from others. 0: no limit.",
        unit="bytes",
        low=0,
        high=1 << 40,
        field_name="log.cleaner.io.max.bytes.per.second",
    )
    unlink_bytes_per_second: int = _setting(
        "unlink.bytes.per.second",
        1024 * MIB,
        "Bytes of files that retention and compaction took out that may be given back to the file "
        "system a second: freeing much at once holds up writes. No limit where the reserve is used "
        "up. 0: no limit ever.",
        unit="bytes",
        low=0,
        high=1 << 40,
    )
    clean_buffer_bytes: int = _setting(
        "clean.buffer.bytes",
        128 * MIB,
        "Memory for the keys of one compaction: with less a large log takes more passes.",
        unit="bytes",
        low=64 << 10,
        high=64 << 30,
        field_name="log.cleaner.dedupe.buffer.size",
    )
    producer_expiration_ms: int = _setting(
        "producer.id.expiration.ms",
        24 * 3_600_000,
        "A producer id that wrote nothing to a partition for so long is forgotten there: a batch "
        "of it that is repeated later is stored twice. Time while the node is down does not count.",
        unit="ms",
        low=1_000,
        high=365 * 24 * 3_600_000,
    )
    producers_max: int = _setting(
        "producer.ids.max",
        10_000,
        "Producer ids that one partition remembers, about 1 KiB each; beyond it the longest idle "
        "is forgotten, never one with an open transaction or one that wrote within two minutes: "
        "a new producer is then told to come back later.",
        unit="producer ids",
        low=1,
        high=1_000_000,
    )
    shutdown_grace_ms: int = _setting(
        "shutdown.grace.ms",
        2_000,
        "How long calls under way may go on when the node stops.",
        unit="ms",
        low=0,
        high=600_000,
    )

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise InvalidConfig naming the first setting that is wrong, and what it may be."""
        for setting in settings():
            if check_value(setting, value := getattr(self, setting.attribute)) != value:
                raise InvalidConfig(f"{setting.name} is {value!r}; give a whole number")
        if not self.data_dir:
            raise InvalidConfig("data.dir is empty; name the node's data directory")
        if self.http_listener:
            parse_address("listeners.http", self.http_listener)
        if self.log_format not in LOG_FORMATS:
            raise InvalidConfig(
                f"log.format is {self.log_format!r}; give {' or '.join(LOG_FORMATS)}"
            )
        self._check_roles()
        self._check_addresses()
        self._check_voters()

    def _check_roles(self) -> None:
        if not self.roles or set(self.roles) - set(ROLES) or len(set(self.roles)) < len(self.roles):
            raise InvalidConfig(
                f"node.roles is {list(self.roles)}; give controller, broker, or both, each once"
            )
        if self.is_controller:
            return
        if self.own_entry is not None:
            raise InvalidConfig(
                f"controller.voters names node {self.node_id}, and node.roles is broker alone: "
                'give it the role "controller" too, or take it out of the voters'
            )
        if self.is_alone:
            raise InvalidConfig(
                "node.roles is broker alone, and no controller is named: say in "
                "controller.bootstrap at which host:port controllers are"
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
            ("advertised.replica", self.advertised_replica),
            ("advertised.controller", self.advertised_controller),
        ):
            if address:
                parse_address(name, address)
        for address in self.controller_bootstrap:
            parse_address("controller.bootstrap", address)
        host, _ = parse_address("listeners.grpc", self.grpc_listener)
        if host in ANY_HOST and self.is_broker and not self.advertised_grpc:
            raise InvalidConfig(
                f"listeners.grpc is on every interface ({host}); say in advertised.grpc which "
                "host:port clients shall use"
            )

    def _check_voters(self) -> None:
        check_voters(self.voters)
        if not self.is_alone and not self.quorum_address:
            host, port = parse_address("listeners.controller", self.controller_listener)
            where = "on every interface" if host in ANY_HOST else f"on port {port}"
            raise InvalidConfig(
                f"listeners.controller is {where}; say in advertised.controller at which "
                "host:port the other members of the quorum reach this node"
            )
        if self.heartbeat_ms * 2 > self.election_timeout_ms:
            raise InvalidConfig(
                f"controller.heartbeat.ms is {self.heartbeat_ms}, more than half of "
                f"controller.election.timeout.ms ({self.election_timeout_ms}): give at most "
                f"{self.election_timeout_ms // 2}"
            )

    @property
    def voters(self) -> tuple[VoterEntry, ...]:
        """What `controller.voters` says."""
        return tuple(parse_voter(text) for text in self.controller_voters)

    @property
    def own_entry(self) -> VoterEntry | None:
        """This node in `controller.voters`."""
        return next((voter for voter in self.voters if voter.node_id == self.node_id), None)

    @property
    def is_alone(self) -> bool:
        """Whether nothing here speaks of other members of the quorum."""
        others = [voter for voter in self.voters if voter.node_id != self.node_id]
        return not others and not self.controller_bootstrap

    @property
    def quorum_address(self) -> str:
        """Where the other members reach this node; "": only the open listener can tell, since it
        picks its port, or is on every interface."""
        if self.advertised_controller:
            return self.advertised_controller
        if (entry := self.own_entry) is not None:
            return entry.address
        host, port = parse_address("listeners.controller", self.controller_listener)
        return "" if host in ANY_HOST or port == 0 else self.controller_listener

    @property
    def stream_listener(self) -> str:
        """Where streams of the other members are taken; port 0 picks a free one."""
        host, _ = parse_address("listeners.controller", self.controller_listener)
        return self.raft_listener or f"{host}:0"

    @property
    def follower_listener(self) -> str:
        """Where streams of followers are taken; port 0 picks a free one."""
        host, _ = parse_address("listeners.grpc", self.grpc_listener)
        return self.replica_listener or f"{host}:0"

    @property
    def quorum_bootstrap(self) -> tuple[str, ...]:
        """Other members that can be asked who leads: voters first, each address once."""
        others = [voter.address for voter in self.voters if voter.node_id != self.node_id]
        return tuple(dict.fromkeys((*others, *self.controller_bootstrap)))

    @property
    def is_controller(self) -> bool:
        """Whether the node votes in the metadata quorum."""
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        """Whether the node leads partitions."""
        return "broker" in self.roles


def settings() -> Iterator[Setting]:
    """Yield the table's rows in the order of the class."""
    for each in fields(NodeConfig):
        yield _row(each)


def parse_toml(text: str, *, source: str) -> NodeConfig:
    """Read a node's configuration; raises InvalidConfig naming `source`, the key and the remedy."""
    return node_config(resolve_node([toml_source(text, path=source)]))


def toml_source(text: str, *, path: str) -> Source:
    """Read a node's file, without the [client] table; raises InvalidConfig."""
    return file_source(tuple(settings()), text, path=path, others=(CLIENT_TABLE,))


def node_environment(environment: Mapping[str, str]) -> Source:
    """Read a node's environment variables; raises InvalidConfig."""
    return environment_source(tuple(settings()), environment)


def resolve_node(sources: Sequence[Source]) -> Resolved:
    """Return every setting from the first source that has it, else its default."""
    return resolve(settings(), sources)


def node_config(found: Resolved) -> NodeConfig:
    """Build the configuration; raises InvalidConfig naming where the wrong value stands."""
    for setting in settings():
        if setting.name not in found.values:
            raise InvalidConfig(
                f"{setting.name} is missing; give it in the file that --config names, as"
                f" --set {setting.name}=..., or as {variable_of(setting.name)}"
            )
    arguments = {row.attribute: found.values[row.name] for row in settings()}
    try:
        return NodeConfig(**arguments)
    except InvalidConfig as error:
        raise _placed(error, found, error.message.partition(" ")[0]) from None


def placed_address(found: Resolved, name: str) -> tuple[str, int]:
    """Split the "host:port" of a setting; raises InvalidConfig naming where it stands."""
    try:
        return parse_address(name, found[name])
    except InvalidConfig as error:
        raise _placed(error, found, name) from None


def _placed(error: InvalidConfig, found: Resolved, name: str) -> InvalidConfig:
    """Return an error about a setting that says where the value stands."""
    origin = found.origins.get(name)
    if origin is None or not origin.place:
        return error
    return InvalidConfig(f"{origin.place}: {error.message}")


def _row(each: "Field[Any]") -> Setting:
    about = each.metadata
    default = None if about["name"] == "data.dir" else each.default
    kind = str if default is None else type(default)
    return Setting(
        name=about["name"],
        attribute=each.name,
        kind=kind,
        default=default,
        unit=about["unit"],
        low=about["low"],
        high=about["high"],
        choices=about["choices"],
        doc=about["doc"],
        field_name=about["field_name"],
    )
