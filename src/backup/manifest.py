"""The layout of a store, and the manifest of a backup. Pure.

    manifests/<backup id>.json             the manifest; written last, a backup exists with it
    running/<backup id>.json               a backup that runs or was interrupted
    data/<topic id>/<partition>/<range>    record batches of a range of offsets; immutable

The name of a data object has everything that its manifest states about it, so a later backup can
reuse the objects of an interrupted one. A manifest is untrusted input: `decode_manifest` checks
types, bounds and relations before anything else reads it, and no path comes from a manifest.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from ..errors import BackupDamaged, InvalidRequest
from ..records.batch import HEADER_SIZE
from ..records.checksum import crc32c

MANIFESTS: Final = "manifests"
RUNNING: Final = "running"
DATA: Final = "data"

MANIFEST_BYTES_MAX: Final = 64 << 20
VALUES_MAX: Final = 6_000_000  # of a manifest; decoded, they take up to about 600 MB
OBJECT_BYTES_MAX: Final = 256 << 20  # of a data object: one with a very large batch
OFFSET_MAX: Final = 2**63 - 1
PARTITIONS_MAX: Final = 100_000  # of a topic
NAME_MAX: Final = 249  # of a topic
TEXT_MAX: Final = 32_768  # of names, notes and values
PROBLEMS_MAX: Final = 1_000
SEAL_VERSION: Final = 2  # of the keys of a new backup

TOPIC_PATTERN: Final = r"^(?!__)(?!\.{1,2}\Z)[a-zA-Z0-9._-]+\Z"  # not of an internal one
_ID: Final = r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}"  # the time comes first, in ms
_BACKUP_PATH: Final = re.compile(rf"(?:{MANIFESTS}|{RUNNING})/({_ID})\.json\Z")
_RANGE: Final = re.compile(
    r"data/([0-9a-f]{32})/(0|[1-9][0-9]{0,9})/"
    r"([0-9]{20})-([0-9]{20})-(0|[1-9][0-9]{0,9})-([1-9][0-9]{0,9})-([0-9a-f]{8})\Z"
)

Offset: TypeAlias = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_MAX)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
TopicName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=NAME_MAX, pattern=TOPIC_PATTERN)
]
TopicId: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
BackupId: TypeAlias = Annotated[str, Meta(pattern=rf"^{_ID}\Z")]
TimeMs: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]  # until the year 9999


class StoredRange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A data object: all committed batches of the offsets [first, end) of a partition."""

    first: Offset
    end: Offset
    records: Annotated[int, Meta(ge=0, le=2**31)]
    size: Annotated[int, Meta(ge=HEADER_SIZE, le=OBJECT_BYTES_MAX)]  # bytes
    crc: Annotated[int, Meta(ge=0, le=2**32 - 1)]  # CRC-32C of the object


class BackupPartition(Struct, frozen=True, forbid_unknown_fields=True):
    """A partition: every committed record of the offsets [start, end) is in its ranges."""

    start: Offset
    end: Offset
    ranges: list[StoredRange]


class BackupTopic(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic, its configs and its partitions by index."""

    name: TopicName
    id: TopicId
    replication: Annotated[int, Meta(ge=1, le=32_767)]
    is_compacted: bool  # by its cleanup.policy, which may be a default of the cluster
    configs: dict[Name, Text]  # those set for the topic
    partitions: Annotated[list[BackupPartition], Meta(min_length=1, max_length=PARTITIONS_MAX)]


class BackupOffset(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A committed offset of a group."""

    topic: TopicName
    partition: Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)]
    offset: Offset
    note: Text


class BackupGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """The committed offsets of a group in the topics of the backup."""

    name: Name
    offsets: list[BackupOffset]


class BackupAcl(Struct, frozen=True, forbid_unknown_fields=True):
    """An ACL, in the terms of `clients.admin.security.Acl`."""

    principal: Name
    operation: Name
    resource_type: Name
    resource: Name
    pattern: Name
    permission: Name
    host: Name


class BackupQuotas(Struct, frozen=True, forbid_unknown_fields=True):
    """The quotas of one client entity."""

    entity: dict[Annotated[str, Meta(pattern=r"^(user|client_id)\Z")], Text | None]
    quotas: dict[Name, float]


class SealedKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """Salted keys of passwords, encrypted; see `sealed_keys`."""

    salt: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    nonce: Annotated[str, Meta(pattern=r"^[0-9a-f]{24}\Z")]
    content: Annotated[str, Meta(max_length=32 << 20, pattern=r"^[0-9a-f]*\Z")]
    version: Literal[1, 2] = 1  # 2: users, ACLs and quotas are authenticated, too


class BackupAccess(Struct, frozen=True, forbid_unknown_fields=True):
    """Users, ACLs and quotas."""

    users: list[Name]  # those with a password
    acls: list[BackupAcl]
    quotas: list[BackupQuotas]
    keys: SealedKeys | None = None  # of the users' passwords

    @property
    def is_authenticated(self) -> bool:
        """True if the passphrase of the keys authenticates users, ACLs and quotas."""
        return self.keys is not None and self.keys.version == SEAL_VERSION


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of one backup."""

    format: Literal[1]
    backup: BackupId
    cluster: Name
    started_ms: TimeMs  # milliseconds since 1970 (UTC)
    ended_ms: TimeMs
    topics: list[BackupTopic]
    groups: list[BackupGroup]
    access: BackupAccess | None
    problems: Annotated[list[Text], Meta(max_length=PROBLEMS_MAX)]  # what the backup lacks

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(each.records for _, _, each in self.data_objects())

    @property
    def size(self) -> int:
        """The size of the records' batches, in bytes."""
        return sum(each.size for _, _, each in self.data_objects())

    def data_objects(self) -> Iterator[tuple[BackupTopic, int, StoredRange]]:
        """Yield each data object with its topic and partition."""
        for topic in self.topics:
            for index, partition in enumerate(topic.partitions):
                for each in partition.ranges:
                    yield topic, index, each


class RunningBackup(Struct, frozen=True, forbid_unknown_fields=True):
    """A backup that runs, or was interrupted."""

    cluster: Name
    started_ms: TimeMs


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    crc32c: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    manifest: msgspec.Raw


# --- names ---------------------------------------------------------------------------------------


def manifest_path(backup: str) -> str:
    """Return the path of a backup's manifest."""
    return f"{MANIFESTS}/{backup}.json"


def running_path(backup: str) -> str:
    """Return the path of the object that marks a running backup."""
    return f"{RUNNING}/{backup}.json"


def backup_of_path(path: str) -> str | None:
    """Return the backup id in the path of a manifest or of a running backup's mark, else None."""
    found = _BACKUP_PATH.match(path)
    return None if found is None else found[1]


def partition_prefix(topic_id: str, partition: int) -> str:
    """Return the prefix of a partition's data objects."""
    return f"{DATA}/{topic_id}/{partition}"


def range_path(topic_id: str, partition: int, each: StoredRange) -> str:
    """Return the path of a data object."""
    return (
        f"{partition_prefix(topic_id, partition)}/{each.first:020d}-{each.end:020d}-{each.records}"
        f"-{each.size}-{each.crc:08x}"
    )


def parse_range_path(path: str) -> tuple[str, int, StoredRange] | None:
    """Return topic id, partition and range of a data object's path; None for any other path."""
    found = _RANGE.match(path)
    if found is None:
        return None
    topic_id, partition, first, end, records, size, crc = found.groups()
    each = StoredRange(int(first), int(end), int(records), int(size), int(crc, 16))
    if not each.first < each.end <= OFFSET_MAX or not HEADER_SIZE <= each.size <= OBJECT_BYTES_MAX:
        return None
    return topic_id, int(partition), each


# --- coding --------------------------------------------------------------------------------------


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest. Raises InvalidRequest for one that `decode_manifest` would
    refuse."""
    raw = msgspec.json.encode(manifest)
    content = msgspec.json.encode(_Envelope(crc32c(raw), msgspec.Raw(raw)))
    try:
        problem = _size_problem(content) or _problem(
            msgspec.json.decode(raw, type=Manifest), manifest.backup
        )
    except msgspec.ValidationError as error:
        problem = f"{error}"
    if problem:
        raise InvalidRequest(
            f"the cluster exceeds a limit of backups, and no manifest was stored: {problem}"
        )
    return content


def decode_manifest(content: bytes, backup: str) -> Manifest:
    """Return the checked manifest of a backup. Raises BackupDamaged."""
    problem = _size_problem(content)
    if problem:
        raise _damaged(backup, problem)
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        if crc32c(envelope.manifest) != envelope.crc32c:
            raise _damaged(backup, "its checksum does not match its content")
        manifest = msgspec.json.decode(envelope.manifest, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(backup, f"{error}") from None
    problem = _problem(manifest, backup)
    if problem is not None:
        raise _damaged(backup, problem)
    return manifest


def decode_running(content: bytes) -> RunningBackup | None:
    """Return the mark of a running backup, None if it is malformed."""
    try:
        return msgspec.json.decode(content, type=RunningBackup)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _problem(manifest: Manifest, backup: str) -> str | None:
    """Return the first broken relation between fields, None if there is none."""
    if manifest.backup != backup:
        return f"it is of backup {manifest.backup}"
    topics = {topic.name: topic for topic in manifest.topics}
    if len(topics) < len(manifest.topics):
        return "two topics have the same name"
    if len({topic.id for topic in manifest.topics}) < len(topics):
        return "two topics have the same id"
    for topic in manifest.topics:
        for index, partition in enumerate(topic.partitions):
            problem = _range_problem(partition)
            if problem is not None:
                return f"{topic.name}-{index}: {problem}"
    return _group_problem(manifest, topics)


def _group_problem(manifest: Manifest, topics: Mapping[str, BackupTopic]) -> str | None:
    """Return the first error of the groups: each offset is in a partition of the backup."""
    if len({group.name for group in manifest.groups}) < len(manifest.groups):
        return "two groups have the same name"
    for group in manifest.groups:
        for each in group.offsets:
            found = topics.get(each.topic)
            if found is None or each.partition >= len(found.partitions):
                place = f"{each.topic}-{each.partition}"
                return f"group {group.name} has an offset in {place}, which the backup lacks"
    return None


def _range_problem(partition: BackupPartition) -> str | None:
    """Return the first error of a partition's ranges: each must follow the one before."""
    if partition.start > partition.end:
        return f"it starts at offset {partition.start} and ends at {partition.end}"
    at: int | None = None
    for each in partition.ranges:
        if each.first >= each.end or each.end > partition.end or each.end <= partition.start:
            return f"offsets {each.first} to {each.end} are no range of it"
        if at is None and each.first > partition.start:
            return f"no object has offset {partition.start}"
        if at is not None and each.first != at:
            return f"offset {each.first} does not follow {at}"
        at = each.end
    return None


def _size_problem(content: bytes) -> str | None:
    """Return the limit that a manifest exceeds. Its values are not decoded: each one follows a
    comma or a colon, but for the first of a list."""
    remedy = "back up fewer topics at once, with --topics"
    if len(content) > MANIFEST_BYTES_MAX:
        return f"the manifest has {len(content)} bytes; the limit is {MANIFEST_BYTES_MAX}; {remedy}"
    values = content.count(b",") + content.count(b":")
    if values > VALUES_MAX:
        return f"the manifest has {values} values; the limit is {VALUES_MAX}; {remedy}"
    return None


def _damaged(backup: str, reason: str) -> BackupDamaged:
    return BackupDamaged(
        f"manifest of backup {backup}: damaged: {reason}; restore another backup, or delete this"
        " one"
    )
