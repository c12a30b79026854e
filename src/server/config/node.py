"""All settings of a node, the checks that concern several of them, and their sources.

Values come from the file, the environment and flags, in the order of `...settings`. Pure: the
caller reads the file and the environment.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from ...errors import InvalidConfig
from ...settings import (
    Resolved,
    Setting,
    SettingSource,
    check_value,
    environment_source,
    file_source,
    resolve,
    variable_of,
)
from ..addresses import (
    ANY_HOST,
    VoterEntry,
    check_kafka_addresses,
    check_voters,
    parse_address,
    parse_voter,
)
from .clients import KafkaClientSettings, RequestSettings
from .declaration import row_of
from .groups import GroupSettings, check_assignors
from .identity import LOG_FORMATS, ROLES, IdentitySettings, ListenerSettings, OperationSettings
from .quorum import QuorumSettings, ReplicationSettings
from .storage import StorageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(
    OperationSettings,
    GroupSettings,
    StorageSettings,
    RequestSettings,
    ReplicationSettings,
    QuorumSettings,
    KafkaClientSettings,
    ListenerSettings,
    IdentitySettings,
):
    """All settings of a node; equal files give equal configurations.

    It inherits from the tables of this package, the last one first. The tables have no generated
    methods: creating them would slow every start. Checks that concern settings of several tables
    are here.
    """

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise InvalidConfig naming the first invalid setting and its allowed values."""
        for setting in settings():
            if check_value(setting, value := getattr(self, setting.attribute)) != value:
                raise InvalidConfig(f"{setting.name}: {value!r}; give a whole number")
        if not self.data_dir:
            raise InvalidConfig("data.dir: empty; give the node's data directory")
        if self.http_listener:
            parse_address("listeners.http", self.http_listener)
        if self.log_format not in LOG_FORMATS:
            raise InvalidConfig(f"log.format: {self.log_format!r}; give {' or '.join(LOG_FORMATS)}")
        self._check_roles()
        self._check_addresses()
        check_kafka_addresses(self.kafka_listeners, self.advertised_kafka)
        self._check_voters()
        check_assignors(self.group_consumer_assignors)

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
        """The address for the other controllers; "" if only the open listener has it: it picks its
        port, or is on every interface."""
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
        host, _ = parse_address("listeners.grpc", self.grpc_listener)
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


def settings() -> Iterator[Setting]:
    """Yield the settings in the order of the fields."""
    for each in fields(NodeConfig):
        yield row_of(each)


CLIENT_TABLE = "client"  # the command line's part of a shared file, ignored by nodes


def parse_toml(text: str, *, source: str) -> NodeConfig:
    """Parse a node's configuration; raises InvalidConfig naming `source`, the key and the
    remedy."""
    return node_config(resolve_node([toml_source(text, path=source)]))


def toml_source(text: str, *, path: str) -> SettingSource:
    """Parse a node's file without the [client] table; raises InvalidConfig."""
    return file_source(tuple(settings()), text, path=path, others=(CLIENT_TABLE,))


def node_environment(environment: Mapping[str, str]) -> SettingSource:
    """Parse a node's environment variables; raises InvalidConfig."""
    return environment_source(tuple(settings()), environment)


def resolve_node(sources: Sequence[SettingSource]) -> Resolved:
    """Return every setting from the first source that has it, else its default."""
    return resolve(settings(), sources)


def node_config(found: Resolved) -> NodeConfig:
    """Build the configuration; raises InvalidConfig naming the source of an invalid value."""
    for setting in settings():
        if setting.name not in found.values:
            raise InvalidConfig(
                f"{setting.name}: missing; give it in the file of --config, as"
                f" --set {setting.name}=..., or as {variable_of(setting.name)}"
            )
    arguments = {row.attribute: found.values[row.name] for row in settings()}
    try:
        return NodeConfig(**arguments)
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
