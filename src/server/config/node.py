"""Everything that a node is told, checked as a whole."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from ...errors import InvalidConfig
from ...settings import Setting, check_value
from ..addresses import (
    ANY_HOST,
    VoterEntry,
    check_kafka_addresses,
    check_voters,
    parse_address,
    parse_voter,
)
from .groups import Groups, check_assignors
from .identity import ROLES, Identity
from .kafka import KafkaClients
from .listeners import Listeners
from .operation import LOG_FORMATS, Operation
from .quorum import Quorum
from .replication import Replication
from .requests import Requests
from .rows import row_of
from .storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(
    Operation,
    Groups,
    Storage,
    Requests,
    Replication,
    Quorum,
    KafkaClients,
    Listeners,
    Identity,
):
    """Everything a node is told; equal files give equal nodes.

    It is the tables of this room in one, the last of the list first; they get no methods of their
    own, since making those would hold up every start. A check that concerns settings of several
    tables is here.
    """

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
        check_kafka_addresses(self.kafka_listeners, self.advertised_kafka)
        self._check_voters()
        check_assignors(self.group_consumer_assignors)

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
        yield row_of(each)
