"""A node's configuration: typed settings from flags, environment and file, validated once, frozen.

Each setting is a dataclass field with its name, unit, range and description. `NodeConfig` has all
of them. `...settings` defines the sources and their order.
"""

from .identity import ROLES
from .node import (
    NodeConfig,
    node_config,
    node_environment,
    parse_toml,
    placed_address,
    resolve_node,
    settings,
    toml_source,
)

__all__ = [
    "NodeConfig",
    "ROLES",
    "node_config",
    "node_environment",
    "parse_toml",
    "placed_address",
    "resolve_node",
    "settings",
    "toml_source",
]
