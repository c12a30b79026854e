"""A node's configuration: typed tables, filled from flags, environment and file, checked once,
frozen.

A field of a table carries its name in the file, unit, range and what it trades. `NodeConfig` is all
tables in one. Where values come from and in which order is `...settings`.
"""

from .identity import ROLES
from .node import NodeConfig, settings
from .reading import (
    node_config,
    node_environment,
    parse_toml,
    placed_address,
    resolve_node,
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
