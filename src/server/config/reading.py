"""A node's configuration from its sources: file, environment and flags, in the order of
`...settings`. Pure: the caller reads the file and the environment."""

from collections.abc import Mapping, Sequence

from ...errors import InvalidConfig
from ...settings import (
    Resolved,
    SettingSource,
    environment_source,
    file_source,
    resolve,
    variable_of,
)
from ..addresses import parse_address
from .node import NodeConfig, settings

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
