"""Configs and log directories: admin types, and their conversion from and to messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import InvalidConfig, QuorumlogError
from ...proto import admin_pb2
from ...runtime.error_detail import decode_error

ConfigValue: TypeAlias = str | int | bool
"""A config's new value: text as in the documentation ("7d", "fsync"), a number, or a bool."""

_SOURCES: Final = {
    admin_pb2.CONFIG_SOURCE_DEFAULT: "default",
    admin_pb2.CONFIG_SOURCE_TOPIC: "topic",
    admin_pb2.CONFIG_SOURCE_FILE: "file",
    admin_pb2.CONFIG_SOURCE_ENVIRONMENT: "environment",
    admin_pb2.CONFIG_SOURCE_FLAG: "flag",
    admin_pb2.CONFIG_SOURCE_CLUSTER: "cluster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """An effective config of a topic or of the cluster, or an effective setting of a broker."""

    name: str
    value: str
    default: str  # the value if it is not set
    source: str  # "default", "topic", "cluster", "file", "environment", "flag"; "unknown"
    place: str  # source of a broker's setting: the flag, the variable, "file:line"; else empty
    type: str  # "whole number", "one of a list", "true or false", "text", "list of text"
    unit: str  # of a number: "ms", "bytes", ...; else empty
    low: int | None  # smallest valid number
    high: int | None  # largest valid number
    choices: tuple[str, ...]  # the valid values, if they are a list
    doc: str
    changes: str  # when a new value takes effect: "at once", "next segment", "restart", ...

    @property
    def is_default(self) -> bool:
        """True if the value is not set."""
        return self.source == "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """The size of one partition on a broker's disk."""

    topic: str
    partition: int
    size_bytes: int  # of its batches
    log_start_offset: int  # the first readable one
    log_end_offset: int  # the offset of the next record
    error: QuorumlogError | None  # the error that makes the log unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """One data directory of a broker."""

    broker: int
    path: str  # on the broker's machine
    logs: tuple[LogSize, ...]  # by topic and partition
    capacity_bytes: int  # of its file system, used or not
    free_bytes: int  # available to the broker

    @property
    def size_bytes(self) -> int:
        """The total size of its partitions."""
        return sum(log.size_bytes for log in self.logs)


def config_of_answer(entry: admin_pb2.ConfigDescription) -> Config:
    """Return a config from its description."""
    return Config(
        name=entry.name,
        value=entry.value,
        default=entry.default_value,
        source=_SOURCES.get(entry.source, "unknown"),
        place=entry.place,
        type=entry.type,
        unit=entry.unit,
        low=entry.low if entry.HasField("low") else None,
        high=entry.high if entry.HasField("high") else None,
        choices=tuple(entry.choices),
        doc=entry.doc,
        changes=entry.changes,
    )


def config_text(name: str, value: object) -> str:
    """Return a config's value as text; raise InvalidConfig if it is no str, int or bool."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidConfig(f"{name} is {value!r}; give text, a whole number, or a bool")


def config_entries(configs: Mapping[str, ConfigValue]) -> list[admin_pb2.ConfigEntry]:
    """Return the messages of a new topic's configs; raise InvalidConfig if a value is invalid."""
    return [
        admin_pb2.ConfigEntry(name=name, value=config_text(name, value))
        for name, value in configs.items()
    ]


def config_changes(
    configs: Mapping[str, ConfigValue], delete: Sequence[str]
) -> list[admin_pb2.ConfigChange]:
    """Return the messages of configs to set and to delete; raise InvalidConfig if one is
    invalid."""
    if isinstance(delete, str):
        raise InvalidConfig(f"delete is {delete!r}; give a list of names")
    changes = [
        admin_pb2.ConfigChange(name=name, value=config_text(name, value))
        for name, value in configs.items()
    ]
    changes += [admin_pb2.ConfigChange(name=name) for name in delete]
    if not changes:
        raise InvalidConfig("there is nothing to change: name a config to set or to delete")
    return changes


def log_dir_of_answer(broker: int, directory: admin_pb2.LogDirDescription) -> LogDir:
    """Return a data directory from its description."""
    return LogDir(
        broker=broker,
        path=directory.path,
        logs=tuple(
            LogSize(
                topic=log.topic,
                partition=log.partition,
                size_bytes=log.size_bytes,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                error=decode_error(log.error) if log.HasField("error") else None,
            )
            for log in directory.logs
        ),
        capacity_bytes=directory.capacity_bytes,
        free_bytes=directory.free_bytes,
    )
