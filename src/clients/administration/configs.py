"""Configs as an administrator sees them: typed answers, and what a change may be written as."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import InvalidConfig, QuorumlogError
from ...proto import admin_pb2
from ...runtime.error_detail import decode_error

ConfigValue: TypeAlias = str | int | bool
"""What a config may be given as: text as in the tables ("7d", "fsync"), a number, a bool."""

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
    """One config of a topic or of the cluster, or one setting of a broker, as it is in force."""

    name: str
    value: str
    default: str  # what it would be if nobody had set it
    source: str  # "default", "topic", "cluster", "file", "environment", "flag"; "unknown"
    place: str  # of a broker's setting: the flag, the variable, "file:line"; else empty
    type: str  # "whole number", "one of a list", "true or false", "text", "list of text"
    unit: str  # of a number: "ms", "bytes", ...; else empty
    low: int | None  # smallest number it takes
    high: int | None  # largest number it takes
    choices: tuple[str, ...]  # what it takes, if that is a list
    doc: str
    changes: str  # when a new value takes effect: "at once", "next segment", "restart", ...

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source == "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """What one partition takes on a broker's disk."""

    topic: str
    partition: int
    size_bytes: int  # of its batches
    log_start_offset: int  # the first readable one
    log_end_offset: int  # the one that the next record gets
    error: QuorumlogError | None  # why the log cannot be used


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """One data directory of a broker."""

    broker: int
    path: str  # on the broker's machine
    logs: tuple[LogSize, ...]  # by topic and partition
    capacity_bytes: int  # of its file system, used or not
    free_bytes: int  # what the broker may still use of them

    @property
    def size_bytes(self) -> int:
        """What its partitions take together."""
        return sum(log.size_bytes for log in self.logs)


def config_of_answer(entry: admin_pb2.ConfigDescription) -> Config:
    """Return one described config."""
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
    """Return a config's value as it travels; raises InvalidConfig for what is no value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidConfig(f"{name} is {value!r}; give text, a whole number, or a bool")


def config_entries(configs: Mapping[str, ConfigValue]) -> list[admin_pb2.ConfigEntry]:
    """Return the configs of a new topic as they travel; raises InvalidConfig."""
    return [
        admin_pb2.ConfigEntry(name=name, value=config_text(name, value))
        for name, value in configs.items()
    ]


def config_changes(
    configs: Mapping[str, ConfigValue], delete: Sequence[str]
) -> list[admin_pb2.ConfigChange]:
    """Return what is set and what goes back to its default as it travels; raises InvalidConfig."""
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
    """Return one described data directory."""
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
