"""Configs, log directories, feature levels and client quotas of the admin client."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import InvalidConfig, InvalidRequest, QuorumlogError
from ...proto import admin_pb2, metadata_records_pb2
from ...proto import admin_pb2 as pb
from ...runtime.error_detail import decode_error
from ...services import (
    ADMIN_ALTER_CLIENT_QUOTAS,
    ADMIN_DESCRIBE_CLIENT_QUOTAS,
    ADMIN_DESCRIBE_FEATURES,
    ADMIN_UPDATE_FEATURES,
)
from ..connection import Connection
from ..topology import invalid_response

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
    # "whole number", "one of a list", "any of a list", "true or false", "text", "list of text"
    type: str
    unit: str  # of a number: "ms", "bytes", ...; else empty
    low: int | None  # smallest valid number
    high: int | None  # largest valid number
    choices: tuple[str, ...]  # the valid values, or parts of a list
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
    open_descriptors: int = 0  # of the broker's process: files and connections; 0: unknown
    descriptors_max: int = 0  # their limit; 0: unknown, or none

    @property
    def size_bytes(self) -> int:
        """The total size of its partitions."""
        return sum(log.size_bytes for log in self.logs)


def decode_config(entry: admin_pb2.ConfigDescription) -> Config:
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


def decode_log_dir(
    answer: admin_pb2.DescribeLogDirsResponse, directory: admin_pb2.LogDirDescription
) -> LogDir:
    """Return a data directory of an answer."""
    return LogDir(
        broker=answer.broker,
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
        open_descriptors=answer.open_descriptors,
        descriptors_max=answer.descriptors_max,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature that needs the support of all nodes."""

    name: str
    level: int  # in force, 0: none
    level_min: int  # lowest level that every broker supports
    level_max: int  # highest level that every broker supports
    doc: str


async def describe_features(connection: Connection) -> dict[str, Feature]:
    """Query any broker; see `AsyncAdmin.describe_features`."""
    request = pb.DescribeFeaturesRequest(min_metadata_offset=connection.topology.metadata_offset)
    answer = await connection.call_any(ADMIN_DESCRIBE_FEATURES, request)
    connection.topology.record_offset(answer.metadata_offset)
    return _features(answer.features)


async def update_features(
    connection: Connection,
    levels: Mapping[str, int],
    *,
    allow_downgrade: bool,
    validate_only: bool,
) -> dict[str, Feature]:
    """Send the update to the controller; idempotent."""
    for name, level in levels.items():
        if type(level) is not int or not 0 <= level < 2**31:
            raise InvalidRequest(f"level of {name!r} is {level!r}; give a number, 0 or more")
    request = pb.UpdateFeaturesRequest(
        updates=[
            pb.FeatureUpdate(name=name, level=level, allow_downgrade=allow_downgrade)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = await connection.call_any(ADMIN_UPDATE_FEATURES, request)
    connection.topology.record_offset(answer.metadata_offset)
    return _features(answer.features)


def _features(entries: Iterable[pb.FeatureDescription]) -> dict[str, Feature]:
    return {
        entry.name: Feature(
            name=entry.name,
            level=entry.level,
            level_min=entry.level_min,
            level_max=entry.level_max,
            doc=entry.doc,
        )
        for entry in entries
    }


QuotaEntity: TypeAlias = Mapping[str, str | None]
"""The client that a quota applies to: "user", "client_id", or both. A name of None is the default
entity: all users, or client ids, without a quota of their own."""

_TYPES: Final = {"user": "user", "client_id": "client-id"}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotas:
    """The quotas of one entity."""

    entity: QuotaEntity
    quotas: Mapping[str, float]  # by key, e.g. {"producer_byte_rate": 1048576.0}


async def describe_quotas(
    connection: Connection, entity: QuotaEntity, *, strict: bool
) -> list[ClientQuotas]:
    """Query any broker; see `AsyncAdmin.describe_quotas`."""
    request = pb.DescribeClientQuotasRequest(
        filters=[
            pb.QuotaFilter(type=kind, name=name)
            if name is not None
            else pb.QuotaFilter(type=kind, is_default=True)
            for kind, name in _parts(entity)
        ],
        strict=strict,
        min_metadata_offset=connection.topology.metadata_offset,
    )
    answer = await connection.call_any(ADMIN_DESCRIBE_CLIENT_QUOTAS, request)
    connection.topology.record_offset(answer.metadata_offset)
    return [
        ClientQuotas(
            entity={
                _NAMES.get(part.type, part.type): part.name if part.HasField("name") else None
                for part in each.entity
            },
            quotas={value.key: value.value for value in each.values},
        )
        for each in answer.quotas
    ]


async def alter_quotas(
    connection: Connection,
    entity: QuotaEntity,
    quotas: Mapping[str, float],
    delete: Sequence[str],
    *,
    validate_only: bool,
) -> None:
    """Send a change of one entity's quotas to the controller; idempotent."""
    alteration = pb.ClientQuotaAlteration(
        entity=[
            metadata_records_pb2.QuotaEntity(type=kind, name=name) for kind, name in _parts(entity)
        ],
        changes=_changes(quotas, delete),
    )
    request = pb.AlterClientQuotasRequest(alterations=[alteration], validate_only=validate_only)
    answer = await connection.call_any(ADMIN_ALTER_CLIENT_QUOTAS, request)
    if len(answer.results) != 1:
        raise invalid_response(f"returned {len(answer.results)} results for 1 change of quotas")
    connection.topology.record_offset(answer.metadata_offset)
    if answer.results[0].HasField("error"):
        raise decode_error(answer.results[0].error)


def _parts(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    for name, value in entity.items():
        if name not in _TYPES:
            raise InvalidRequest(f"the entity has {name!r}; give user, client_id, or both")
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{name} is {value!r}; give text, or None for the default")
    return [(_TYPES[name], value) for name, value in entity.items()]


def _changes(quotas: Mapping[str, float], delete: Sequence[str]) -> list[pb.QuotaChange]:
    if isinstance(delete, str):
        raise InvalidRequest(f"delete is {delete!r}; give a list of keys")
    changes = [pb.QuotaChange(key=key, value=_number(key, value)) for key, value in quotas.items()]
    changes += [pb.QuotaChange(key=key) for key in delete]
    if not changes:
        raise InvalidRequest("there is nothing to change: name a quota to set or to delete")
    return changes


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"{key} is {value!r}; give a number above 0")
    return float(value)
