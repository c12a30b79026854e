"""A node's configuration with other settings, by keyword."""

from dataclasses import replace
from typing import Any

from quorumlog.server.config import NodeConfig
from quorumlog.settings import check_value, declared


def with_settings(config: NodeConfig, **settings: Any) -> NodeConfig:
    """Return a copy with these settings; a keyword names node.rack as node_rack."""
    rows = {name.replace(".", "_"): found for name, found in declared(NodeConfig).items()}
    for key, value in settings.items():
        row, path = rows[key]
        config = _replaced(config, path, check_value(row, value))
    return config


def _replaced(part: Any, path: tuple[str, ...], value: Any) -> Any:
    first, *rest = path
    inner = _replaced(getattr(part, first), tuple(rest), value) if rest else value
    return replace(part, **{first: inner})
