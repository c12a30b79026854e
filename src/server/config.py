"""A node's configuration: one typed table, read from TOML, checked once, frozen.

`NodeConfig` is the table: each field carries its name in the file, unit, range and what it trades.
TOML's dotted keys and tables are the same thing, so `listeners.grpc = ...` and a `[listeners]`
table both work. An unknown key is refused with the nearest right one. Pure: reading the file is
the caller's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from ..errors import InvalidConfig
from ..ids import NodeId

ROLES = ("controller", "broker")
ANY_HOST = ("0.0.0.0", "[::]")
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table, as the documentation and the checks use it."""

    name: str  # in the file, e.g. "listeners.grpc"
    attribute: str  # of NodeConfig
    kind: type  # int, str, or tuple (of str)
    default: Any  # None: must be given
    unit: str
    low: int | None  # inclusive, ints only
    high: int | None  # inclusive, ints only
    doc: str


def _setting(
    name: str,
    default: Any,
    doc: str,
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
) -> Any:
    about = {"name": name, "unit": unit, "low": low, "high": high, "doc": doc}
    if default is None:
        return field(metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything a node is told; equal files give equal nodes."""

    data_dir: str = _setting(
        "data.dir", None, "The node's data directory, formatted before its first start."
    )
    node_id: int = _setting(
        "node.id", 1, "Id of this node, unique in the cluster.", low=0, high=2**31 - 1
    )
    roles: tuple[str, ...] = _setting(
        "node.roles",
        ROLES,
        "What the node does: controller, broker, or both. Only both works so far.",
    )
    rack: str = _setting("node.rack", "", "Failure zone of the node; empty: none.")
    cluster_id: str = _setting(
        "cluster.id",
        "",
        "Cluster the data directory must belong to; empty: whatever it was formatted for.",
    )
    grpc_listener: str = _setting(
        "listeners.grpc", "127.0.0.1:9094", "host:port clients use; port 0 picks a free one."
    )
    controller_listener: str = _setting(
        "listeners.controller",
        "127.0.0.1:9093",
        "host:port for brokers and controllers; port 0 picks a free one.",
    )
    advertised_grpc: str = _setting(
        "advertised.grpc", "", "host:port told to clients; empty: the listener's own address."
    )
    controller_voters: tuple[str, ...] = _setting(
        "controller.voters",
        (),
        'The quorum as "id@host:port"; empty: this node alone. Only one voter works so far.',
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
        "Upper bound of one fetch answer, and of what one fetch holds in memory.",
        unit="bytes",
        low=64 << 10,
        high=60 * MIB,
    )
    subscribe_heartbeat_ms: int = _setting(
        "subscribe.heartbeat.ms",
        5_000,
        "An idle Subscribe stream says so this often, so that a silent cut is noticed.",
        unit="ms",
        low=100,
        high=600_000,
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
            _check(setting, getattr(self, setting.attribute))
        if not self.data_dir:
            raise InvalidConfig("data.dir is empty; name the node's data directory")
        if not self.roles or set(self.roles) - set(ROLES) or len(set(self.roles)) < len(self.roles):
            raise InvalidConfig(
                f"node.roles is {list(self.roles)}; give controller, broker, or both, each once"
            )
        if set(self.roles) != set(ROLES):
            raise InvalidConfig(
                f"node.roles is {list(self.roles)}; this version runs both roles in every node"
            )
        for name, address in (
            ("listeners.grpc", self.grpc_listener),
            ("listeners.controller", self.controller_listener),
            ("advertised.grpc", self.advertised_grpc),
        ):
            if address or name != "advertised.grpc":
                parse_address(name, address)
        host, _ = parse_address("listeners.grpc", self.grpc_listener)
        if host in ANY_HOST and not self.advertised_grpc:
            raise InvalidConfig(
                f"listeners.grpc is on every interface ({host}); say in advertised.grpc which "
                "host:port clients shall use"
            )
        voters = [parse_voter(text)[0] for text in self.controller_voters]
        if len(voters) > 1:
            raise InvalidConfig(
                f"controller.voters names {len(voters)} voters; this version runs one"
            )
        if voters and voters != [self.node_id]:
            raise InvalidConfig(
                f"controller.voters names node {voters[0]}, node.id is {self.node_id}; "
                "the only voter must be this node"
            )

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
    import tomllib  # 12 ms that `quorumlog dev` does not need

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{source} is not TOML: {error}") from None
    try:
        return from_settings(_flatten(tree, ""))
    except InvalidConfig as error:
        raise InvalidConfig(f"{source}: {error.message}") from None


def from_settings(values: Mapping[str, Any]) -> NodeConfig:
    """Build the configuration from values by setting name; raises InvalidConfig."""
    by_name = {setting.name: setting for setting in settings()}
    arguments: dict[str, Any] = {}
    for name in sorted(values):
        setting = by_name.get(name)
        if setting is None:
            raise InvalidConfig(unknown_key(name, by_name))
        value = values[name]
        if setting.kind is tuple and isinstance(value, list):
            value = tuple(value)
        arguments[setting.attribute] = value
    for setting in by_name.values():
        if setting.default is None and setting.attribute not in arguments:
            raise InvalidConfig(f"{setting.name} is missing: {setting.doc}")
    return NodeConfig(**arguments)


def unknown_key(name: str, known: Mapping[str, object]) -> str:
    """Say that a key is unknown, and which was probably meant."""
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
    return f"unknown setting {name}{hint}"


def parse_address(name: str, text: str) -> tuple[str, int]:
    """Split "host:port"; raises InvalidConfig naming the setting."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidConfig(f'{name} is "{text}"; give host:port with a port of 0..65535')
    return host, int(port)


def parse_voter(text: str) -> tuple[NodeId, str]:
    """Split "id@host:port"; raises InvalidConfig."""
    number, at, address = text.partition("@")
    if not at or not number.isdecimal():
        raise InvalidConfig(f'controller.voters has "{text}"; give "id@host:port"')
    parse_address("controller.voters", address)
    return NodeId(int(number)), address


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
        doc=about["doc"],
    )


def _check(setting: Setting, value: object) -> None:
    words = {int: "a whole number", str: "text", tuple: "a list of text"}
    fits = isinstance(value, setting.kind) and not isinstance(value, bool)
    if fits and isinstance(value, tuple):
        fits = all(isinstance(item, str) for item in value)
    if not fits:
        raise InvalidConfig(f"{setting.name} is {value!r}; give {words[setting.kind]}")
    if isinstance(value, int):
        low, high = setting.low, setting.high
        if (low is not None and value < low) or (high is not None and value > high):
            raise InvalidConfig(f"{setting.name} is {value}; give {low}..{high} {setting.unit}")


def _flatten(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat
